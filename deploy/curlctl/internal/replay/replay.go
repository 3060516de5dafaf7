// Package replay fetches keys again: those of failures, or all that are selected. It follows their outcome.
package replay

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// Verdict on a selected failure. A Follower replaces Replayed and Already by the outcome.
type Verdict string

// The verdicts.
const (
	// StillWanted: the failed request is still wanted.
	StillWanted Verdict = "wanted"
	// Replayed: the fetch was requested.
	Replayed Verdict = "replayed"
	// Already: the same replay was requested within the last two minutes.
	Already Verdict = "already replayed"
	// Recovered: the key has been fetched since.
	Recovered Verdict = keys.Recovered
	// Gone: the key is not wanted any more.
	Gone Verdict = keys.Gone
	// Changed: the key has another URL, or belongs to another object.
	Changed Verdict = keys.Changed
	// Older: a newer failure of the same key was selected, too.
	Older Verdict = "older failure of the same key"
	// Unreadable: the failure has no request.
	Unreadable Verdict = "holds no request"
	// Fetched: the body was fetched and handed to the writer.
	Fetched Verdict = "fetched"
	// FailedAgain: all attempts failed; there is a new failure.
	FailedAgain Verdict = "failed again"
	// Superseded: the want has been changed or removed since the replay.
	Superseded Verdict = "changed meanwhile"
)

// Item is a selected failure, or a key to refetch without one.
type Item struct {
	// ID of the failure (0: none).
	ID      uint64
	Key     pipeline.Key
	Verdict Verdict
	// Begun identifies a refetch, which is Already requested if another has the same (0: the time of the call).
	Begun int64
	// NewFailure is the new failure if it is FailedAgain, else nil.
	NewFailure *broker.DeadLetter

	request keys.Request
}

// Failures says which failures are replayed: only the newest of a key, and only if its request is still wanted.
type Failures struct {
	// Namespace of the failures (empty: all).
	Namespace string
	// AlsoRecovered includes keys that were fetched since.
	AlsoRecovered bool
	// Retrying adds the keys of Namespace that are between two retries, so that they fail without a failure in the record.
	Retrying bool
}

// Items compares each failure with the current state of its key.
func (o Failures) Items(
	ctx context.Context, client *broker.Client, failures iter.Seq2[broker.DeadLetter, error],
) (items []*Item, err error) {
	for f, err := range failures {
		if err != nil {
			return nil, err
		}
		item := &Item{ID: f.ID, Key: f.Key, Verdict: Gone, request: keys.RequestOf(f.Message.GetWant())}
		if f.Message.GetWant() == nil {
			item.Verdict = Unreadable
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(b.ID, a.ID) })
	newest := map[pipeline.Key]*Item{}
	for _, item := range items {
		if newest[item.Key] == nil {
			newest[item.Key] = item
		} else if item.Verdict != Unreadable {
			item.Verdict = Older
		}
	}
	r := keys.Reader{Client: client.Counting(), Namespace: o.Namespace, Now: time.Now()}
	err = r.Some(ctx, slices.Collect(maps.Keys(newest)), func(k keys.Key) {
		item := newest[pipeline.Key(k.ConfigMapKey)]
		if item.Verdict != Gone {
			return
		}
		item.Verdict = StillWanted
		if now := Verdict(keys.CurrentState(item.request, &k)); now == Changed || now == Recovered && !o.AlsoRecovered {
			item.Verdict = now
		}
	})
	if err == nil && o.Retrying {
		_, err = r.Each(ctx, func(k keys.Key) {
			key := pipeline.Key(k.ConfigMapKey)
			if newest[key] == nil && (k.State == keystate.Failing || k.Attempts > 0) {
				items = append(items, &Item{Key: key, Verdict: StillWanted})
			}
		})
	}
	return items, err
}

// Refetch selects wanted keys to fetch without a failure. Empty fields select all.
type Refetch struct {
	keys.Scope

	// URL is a prefix.
	URL string
	// Begun identifies the request (0: the time of the call). Another one with the same has the verdict Already.
	Begun int64
}

// Items reads the selected keys.
func (r Refetch) Items(ctx context.Context, client *broker.Client) (items []*Item, err error) {
	for w, err := range client.Wants(ctx, r.Namespace, r.Name) {
		if err != nil {
			return nil, err
		}
		if r.selects(w.Want.GetUrl()) {
			items = append(items, &Item{Key: w.Key, Verdict: StillWanted, Begun: r.Begun})
		}
	}
	return items, nil
}

// Words returns the arguments of curlctl that select the same keys.
func (r Refetch) Words() []string {
	words, scope := []string{"--all"}, r.Scope
	if r.Namespace != "" && r.Name != "" {
		words, scope.Namespace = []string{r.Namespace + "/" + r.Name}, ""
	}
	scope.Name = "" // no flag
	return append(words, scope.Words()...)
}

// selects reports whether a URL has the host and the prefix.
func (r Refetch) selects(raw string) bool {
	if r.Host != "" && !weburl.HostIs(raw, r.Host) {
		return false
	}
	if r.URL == "" {
		return true
	}
	prefix, wrong := weburl.Canonical(r.URL, "https")
	rest, found := strings.CutPrefix(raw, prefix)
	// A prefix that ends in the host must match the whole host.
	endsInHost := strings.Count(prefix, "/") == 2
	return wrong == "" && found && (!endsInHost || rest == "" || strings.ContainsAny(rest[:1], "/?"))
}

// Skipped says how many items are skipped and why.
func Skipped(counts map[Verdict]int) (lines []string) {
	for _, skipped := range []struct {
		verdict Verdict
		why     string
	}{
		{Recovered, "recovered (--also-recovered replays them, too)"},
		{Gone, "gone"},
		{Changed, "changed to another URL or object"},
		{Older, "there is a newer one of the same key"},
		{Unreadable, "no request in it"},
		{Already, "replayed less than two minutes ago"},
	} {
		if n := counts[skipped.verdict]; n > 0 {
			lines = append(lines, "Skipped "+printer.Plural(n, "failure")+": "+skipped.why)
		}
	}
	return lines
}

// Verdicts counts items by verdict.
func Verdicts(items []*Item) map[Verdict]int {
	counts := map[Verdict]int{}
	for _, item := range items {
		counts[item.Verdict]++
	}
	return counts
}
