// Package keys reads wanted keys with their timers, failures and objects, and computes the condition of each key.
package keys

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// Key is a wanted key. It keeps no message, to save memory.
type Key struct {
	pipeline.Key
	Request

	// Host of the URL, which may be an address.
	Host     string
	Refresh  time.Duration
	Cause    v1.Cause
	Sequence uint64
	// At is when the want was published.
	At        time.Time
	Condition keystate.Condition
}

// Listed is a key in JSON output.
type Listed struct {
	Namespace string `json:"namespace"`
	ConfigMap string `json:"configMap"`
	Key       string `json:"key,omitempty"`
	UID       string `json:"uid,omitempty"`
	keystate.Condition
	Host     string    `json:"host,omitempty"`
	URL      string    `json:"url,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Cause    string    `json:"cause,omitempty"`
	Sequence uint64    `json:"sequence,omitempty"`
	WantedAt time.Time `json:"wantedAt,omitzero"`
}

// Listed returns the key for output.
func (k *Key) Listed() Listed {
	l := Listed{
		Namespace: k.Namespace, ConfigMap: k.Name, Key: k.Key.Key, UID: k.UID, Condition: k.Condition, Host: k.Host,
		URL: weburl.WithoutQuery(k.URL), Sequence: k.Sequence, WantedAt: k.At,
	}
	if k.Refresh > 0 {
		l.Refresh = duration.Format(k.Refresh)
	}
	if k.Sequence > 0 {
		l.Cause = pipeline.CauseName(k.Cause)
	}
	return l
}

// Row returns the row of the key in lists.
func (k Key) Row(now time.Time) printer.Row { return k.Listed().Row(now) }

// Row returns the row of the key in lists.
func (l Listed) Row(now time.Time) printer.Row {
	next := ""
	if !l.Next.IsZero() {
		next = printer.Until(now, l.Next)
	}
	name := pipeline.Key{Namespace: l.Namespace, Name: l.ConfigMap, Key: l.Key}.String()
	return printer.Row{
		Name: "key/" + strings.TrimSuffix(name, "/"), Object: l,
		Cells: printer.Cells(
			"STATE", l.State, "REASON", Reason(l.Reason, l.Status), "SINCE", printer.Age(now, l.Since), "NEXT TRY", next,
			"HOST", l.Host, "NAMESPACE", l.Namespace, "CONFIGMAP", l.ConfigMap, "KEY", l.Key,
		),
		Wide: printer.Cells(
			"CHECKED", printer.Age(now, l.LastAttempt), "WAITS FOR", l.WaitsFor, "ATTEMPTS", l.Attempts, "REFRESH", l.Refresh,
			"URL", l.URL, "MESSAGE", l.Message,
		),
	}
}

// Filter selects keys. Empty fields select all.
type Filter struct {
	Namespace, Name, Host, Reason string
	// NotGood excludes good keys, and Stale and HeldBack select only such keys.
	NotGood, Stale, HeldBack bool
}

// Selects reports whether the filter selects a key.
func (f Filter) Selects(k *Key) bool {
	c := k.Condition
	return (f.Namespace == "" || k.Namespace == f.Namespace) && (f.Name == "" || k.Name == f.Name) &&
		(f.Host == "" || k.HostIs(f.Host)) && (f.Reason == "" || c.Reason == f.Reason) &&
		(!f.NotGood || !c.Good()) && (!f.Stale || c.Stale) && (!f.HeldBack || c.State == keystate.HeldBack)
}

// Reader reads the keys and timers of a namespace and name (empty: all).
type Reader struct {
	Client          *operate.Client
	Namespace, Name string
	Now             time.Time
	// Objects of the cluster (nil: the cluster was not read).
	Objects Objects
}

// Request identifies what a want fetches and for which object. Failures of another Request are not replayed.
type Request struct {
	UID string
	// URL may hold secrets.
	URL    string
	SHA256 string
}

// RequestOf returns the request of a want.
func RequestOf(w *v1.Want) Request {
	return Request{UID: w.GetUid(), URL: w.GetUrl(), SHA256: w.GetSha256()}
}

// Timers are pending timers by key, without their wants.
type Timers map[pipeline.Key]operate.NextFetch

// byKey reads timers or dues, and keeps the last one of each key. It drops the want and other fields for
// fetchers, which take most of the memory, except for the digest of the newest body.
func byKey(all iter.Seq2[operate.NextFetch, error]) (Timers, error) {
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
func (r Reader) Read(ctx context.Context) ([]Key, Timers, error) {
	handled, err := r.Client.Handled(ctx)
	if err != nil {
		return nil, nil, err
	}
	timers, err := byKey(r.Client.Timers(ctx, r.Namespace, r.Name))
	if err != nil {
		return nil, nil, err
	}
	dues, err := byKey(r.Client.Dues(ctx, r.Namespace, r.Name, handled+1))
	if err != nil {
		return nil, nil, err
	}
	var all []Key
	wanted := map[pipeline.Key]bool{}
	for w, err := range r.Client.Wants(ctx, r.Namespace, r.Name) {
		if err != nil {
			return nil, nil, err
		}
		next, pending := timers[w.Key]
		if !pending {
			next = dues[w.Key]
		}
		wanted[w.Key] = true
		all = append(all, r.key(w, next, handled))
	}
	all = append(all, r.Objects.unpublished(r.Namespace, r.Name, wanted, &keystate.Streams{}, r.Now)...)
	return all, timers, nil
}

// key returns a wanted key with its condition. If nothing is scheduled, next has no Due.
func (r Reader) key(w operate.Want, next operate.NextFetch, handled uint64) Key {
	k := Key{
		Key: w.Key, Request: RequestOf(w.Want), Host: sentence.Host(w.Want.GetUrl()),
		Refresh: w.Want.GetRefresh().AsDuration(), Cause: w.Want.GetCause(), Sequence: w.Sequence, At: w.At,
	}
	spec := keystate.SpecOfWant(w.Want)
	streams := keystate.Streams{
		Wanted: true, WantedAt: w.At, Taken: w.Sequence <= handled, Audited: k.Cause == v1.Cause_CAUSE_AUDIT,
	}
	if next.Due.GetWantSequence() == w.Sequence {
		streams.Due, streams.At, streams.SetAt, streams.Fired = next.Due, next.At, next.SetAt, next.IsDue
		streams.Newest = next.Due.GetCached().GetSha256()
	}
	var shown *keystate.View
	if object, found := r.Objects[pipeline.Key{Namespace: w.Key.Namespace, Name: w.Key.Name}]; found {
		shown, spec.Ignored = object.Shown(w.Key.Key), object.Ignored
	}
	k.Condition = keystate.Of(spec, shown, &streams, r.Now)
	return k
}

// HostIs reports whether a name or an address is the host of the key.
func (k *Key) HostIs(host string) bool {
	return k.Host == strings.ToLower(host) || pipeline.HostIs(k.URL, host)
}

// Compare sorts by namespace, name and key.
func Compare(a, b pipeline.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Key,
		b.Key))
}

// Find returns a key of a sorted list, or nil.
func Find(sorted []Key, key pipeline.Key) *Key {
	at, found := slices.BinarySearchFunc(sorted, key, func(a Key, b pipeline.Key) int { return Compare(a.Key, b) })
	if !found {
		return nil
	}
	return &sorted[at]
}

// One reads one key from the streams (nil: it is not wanted). The fetchers have handled all requests up to
// the sequence handled.
func (r Reader) One(ctx context.Context, key pipeline.Key, handled uint64) (*Key, error) {
	want, err := r.Client.Wanted(ctx, key)
	switch {
	case errors.Is(err, pipeline.ErrMalformed):
		return &Key{Key: key}, nil
	case err != nil, want.Sequence == 0:
		return nil, err
	}
	next, err := r.Client.PendingTimer(ctx, key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrMalformed):
		next = operate.NextFetch{}
		if due, err := r.Client.LastDue(ctx, key); err == nil && due > handled {
			handled = 0 // a due is waiting, so the key is pending
		}
	case err != nil:
		return nil, err
	}
	found := r.key(want, next, handled)
	return &found, nil
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

// StateNow returns the current state of a key whose request failed earlier (nil: it is not wanted).
func StateNow(failed Request, k *Key) string {
	switch {
	case k == nil:
		return Gone
	case failed != k.Request:
		return Changed
	case k.Condition.Good():
		return Recovered
	}
	return string(k.Condition.State)
}
