// Package keys reads wanted keys with their timers, failures and objects, and computes the condition of each key.
package keys

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// URL is printed and encoded without its query, which may hold secrets.
type URL string

// String returns the URL without its query.
func (u URL) String() string { return weburl.WithoutQuery(string(u)) }

// MarshalText returns the URL without its query.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// ConfigMapKey is a pipeline.Key in JSON output.
type ConfigMapKey struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"configMap,omitempty"`
	Key       string `json:"key,omitempty"`
}

// Key is a wanted or annotated key with its state. It keeps no message, to save memory.
type Key struct {
	ConfigMapKey
	Request
	keystate.Condition

	// Host of the URL, which may be an address.
	Host string `json:"host,omitempty"`
	// Refresh is the interval, if there is one.
	Refresh string `json:"refresh,omitempty"`
	Cause   string `json:"cause,omitempty"`
	// Sequence of the want, which was published at WantedAt.
	Sequence uint64    `json:"sequence,omitempty"`
	WantedAt time.Time `json:"wantedAt,omitzero"`
}

// Row returns the row of the key in lists.
func (k Key) Row(now time.Time) printer.Row {
	next := ""
	if !k.Next.IsZero() {
		next = printer.Until(now, k.Next)
	}
	return printer.Row{
		Name: "key/" + strings.TrimSuffix(pipeline.Key(k.ConfigMapKey).String(), "/"), Object: k,
		Cells: printer.Cells(
			"STATE", k.State, "REASON", Reason(k.Reason, k.Status), "SINCE", printer.Age(now, k.Since), "NEXT TRY", next,
			"HOST", k.Host, "NAMESPACE", k.Namespace, "CONFIGMAP", k.Name, "KEY", k.Key,
		),
		Wide: printer.Cells(
			"CHECKED", printer.Age(now, k.LastAttempt), "WAITS FOR", k.WaitsFor, "ATTEMPTS", k.Attempts, "REFRESH", k.Refresh,
			"URL", k.URL, "MESSAGE", k.Message,
		),
	}
}

// formatInterval formats an interval (empty for none).
func formatInterval(interval time.Duration) string {
	if interval <= 0 {
		return ""
	}
	return duration.Format(interval)
}

// Scope selects keys. Empty fields select all.
type Scope struct{ Namespace, Name, Host string }

// Words returns the flags of curlctl that select the same keys.
func (s Scope) Words() (words []string) {
	for _, flag := range [][2]string{{"namespace", s.Namespace}, {"name", s.Name}, {"host", s.Host}} {
		if flag[1] != "" {
			words = append(words, "--"+flag[0]+"="+flag[1])
		}
	}
	return words
}

// Filter selects keys of a scope. Empty fields select all.
type Filter struct {
	Scope

	Reason string
	// NotGood excludes good keys, and Stale and HeldBack select only such keys.
	NotGood, Stale, HeldBack bool
}

// Selects reports whether the filter selects a key.
func (f Filter) Selects(k *Key) bool {
	return (f.Namespace == "" || k.Namespace == f.Namespace) && (f.Name == "" || k.Name == f.Name) &&
		(f.Host == "" || k.Host == strings.ToLower(f.Host) || weburl.HostIs(string(k.URL), f.Host)) &&
		(f.Reason == "" || k.Reason == f.Reason) &&
		(!f.NotGood || !k.Good()) && (!f.Stale || k.Stale) && (!f.HeldBack || k.State == keystate.HeldBack)
}

// Reader reads the keys and timers of a namespace and name (empty: all).
type Reader struct {
	Client          *broker.Client
	Namespace, Name string
	Now             time.Time
	// Objects of the cluster (nil: the cluster was not read).
	Objects Objects
}

// Request identifies what a want fetches and for which object. Failures of another Request are not replayed.
type Request struct {
	UID    string `json:"uid,omitempty"`
	URL    URL    `json:"url,omitempty"`
	SHA256 string `json:"-"`
}

// RequestOf returns the request of a want.
func RequestOf(w *v1.Want) Request {
	return Request{UID: w.GetUid(), URL: URL(w.GetUrl()), SHA256: w.GetSha256()}
}

// Timers are pending timers by key, without their wants.
type Timers map[pipeline.Key]broker.NextFetch

// byKey reads timers or dues, and keeps the last one of each key. It drops the want and other fields for
// fetchers, which take most of the memory, except for the digest of the newest body.
func byKey(all iter.Seq2[broker.NextFetch, error]) (Timers, error) {
	last := Timers{}
	for next, err := range all {
		if err != nil {
			return nil, err
		}
		next.Due.Want, next.Due.Cached = nil, &v1.Cached{Sha256: next.Due.GetCached().GetSha256()}
		last[next.Key] = next
	}
	return last, nil
}

// Read returns the wanted keys in the order of the stream, then annotated keys without a want, and the
// pending timers.
func (r Reader) Read(ctx context.Context) (all []Key, timers Timers, err error) {
	timers, err = r.Each(ctx, func(k Key) { all = append(all, k) })
	return all, timers, err
}

// Each visits the keys like Read, one at a time, which takes less memory.
func (r Reader) Each(ctx context.Context, visit func(Key)) (Timers, error) {
	handled, err := r.Client.Handled(ctx)
	if err != nil {
		return nil, err
	}
	timers, err := byKey(r.Client.Timers(ctx, r.Namespace, r.Name))
	if err != nil {
		return nil, err
	}
	dues, err := byKey(r.Client.Dues(ctx, r.Namespace, r.Name, handled+1))
	if err != nil {
		return nil, err
	}
	wanted := map[pipeline.Key]bool{}
	for w, err := range r.Client.Wants(ctx, r.Namespace, r.Name) {
		if err != nil {
			return nil, err
		}
		next, pending := timers[w.Key]
		if !pending {
			next = dues[w.Key]
		}
		if r.Objects != nil {
			wanted[w.Key] = true
		}
		visit(r.key(w, next, handled))
	}
	for _, k := range r.Objects.unpublished(r.Namespace, r.Name, wanted, &keystate.Streams{}, r.Now) {
		visit(k)
	}
	return timers, nil
}

// key returns a wanted key. If nothing is scheduled, next has no Due.
func (r Reader) key(w broker.StoredWant, next broker.NextFetch, handled uint64) Key {
	spec := keystate.SpecOfWant(w.Want)
	streams := keystate.Streams{
		Wanted: true, WantedAt: w.At, Taken: w.Sequence <= handled, NotLanding: w.Want.GetCause() == v1.Cause_CAUSE_AUDIT,
	}
	if next.Due.GetWantSequence() == w.Sequence {
		streams.Due, streams.At, streams.SetAt, streams.Fired = next.Due, next.At, next.SetAt, next.Fired
		streams.Newest = next.Due.GetCached().GetSha256()
	}
	var shown *keystate.View
	if object, found := r.Objects[pipeline.Key{Namespace: w.Key.Namespace, Name: w.Key.Name}]; found {
		shown, spec.Ignored = object.View(w.Key.Key), object.Ignored
		answered := shown.Entry.Fence.Compare(status.Fence{Epoch: w.Want.GetEpoch(), Seq: w.Sequence}) >= 0
		streams.NotLanding = streams.NotLanding && !answered
	}
	return Key{
		ConfigMapKey: ConfigMapKey(w.Key), Request: RequestOf(w.Want), Condition: keystate.Of(spec, shown, &streams, r.Now),
		Host: sentence.Host(w.Want.GetUrl()), Refresh: formatInterval(w.Want.GetRefresh().AsDuration()),
		Cause: pipeline.CauseName(w.Want.GetCause()), Sequence: w.Sequence, WantedAt: w.At,
	}
}

// Compare sorts by namespace, name and key.
func Compare(a, b ConfigMapKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

// Find returns a key of a sorted list, or nil.
func Find(sorted []Key, key pipeline.Key) *Key {
	at, found := slices.BinarySearchFunc(sorted, ConfigMapKey(key), func(a Key, b ConfigMapKey) int {
		return Compare(a.ConfigMapKey, b)
	})
	if !found {
		return nil
	}
	return &sorted[at]
}

// Some visits each of the given keys that is wanted. It ignores Namespace and Name.
func (r Reader) Some(ctx context.Context, keys []pipeline.Key, visit func(Key)) error {
	handled, err := r.Client.Handled(ctx)
	if err != nil {
		return err
	}
	return r.Client.Requests(ctx, keys, func(w broker.StoredWant, next broker.NextFetch) {
		if next.Fired && next.Sequence <= handled {
			next = broker.NextFetch{} // it was fetched since
		}
		visit(r.key(w, next, handled))
	})
}

// ReadOne reads one key (nil: it is not wanted).
func (r Reader) ReadOne(ctx context.Context, key pipeline.Key) (found *Key, err error) {
	err = r.Some(ctx, []pipeline.Key{key}, func(k Key) { found = &k })
	return found, err
}

// States of a key whose request failed earlier, next to those of a key.
const (
	// Recovered: the key has been fetched since.
	Recovered = "recovered"
	// Gone: the key is not wanted any more.
	Gone = "gone"
	// Changed: the key has another URL, or belongs to another object.
	Changed = "changed"
)

// CurrentState returns the current state of a key whose request failed earlier (nil: it is not wanted).
func CurrentState(failed Request, k *Key) string {
	switch {
	case k == nil:
		return Gone
	case failed != k.Request:
		return Changed
	case k.Good():
		return Recovered
	}
	return string(k.State)
}
