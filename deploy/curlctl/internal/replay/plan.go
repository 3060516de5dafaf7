// Package replay asks for failed fetches again, and follows what becomes of
// them.
package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Verdict is what becomes of a failure that was selected.
type Verdict string

// The verdicts.
const (
	// Wanted: the object still asks for what failed.
	Wanted Verdict = "wanted"
	// Replayed: the fetch was asked for, or is scheduled.
	Replayed Verdict = "replayed"
	// Already: the same replay was asked for within the last two minutes.
	Already Verdict = "already replayed"
	// Sooner: a timer of the key fires before the time that the replay was to.
	Sooner Verdict = "scheduled sooner"
	// Gone: nothing is wanted for the key any more.
	Gone Verdict = "no longer wanted"
	// Changed: something else is wanted for the key, or for another object.
	Changed Verdict = "changed since"
	// Older: a newer failure of the same key was selected, too.
	Older Verdict = "older failure of the same key"
	// Unreadable: the failure holds no request.
	Unreadable Verdict = "holds no request"
)

// Item is a failure that was selected.
type Item struct {
	// ID of the failure.
	ID uint64
	// Traceparent of the attempt that ended in it; empty: not traced.
	Traceparent string
	// Key that failed.
	Key pipeline.Key
	// Verdict on it.
	Verdict Verdict

	request request
}

// request is what must not have changed.
type request struct{ uid, url, sha256 string }

func requestOf(w *v1.Want) request {
	return request{uid: w.GetUid(), url: w.GetUrl(), sha256: w.GetSha256()}
}

// concurrency of reads and publishes.
const concurrency = 16

// Plan checks each failure against what is wanted now. Failures come newest
// first; of one key only the first counts. Progress, if set, is called with how
// many have been checked.
func Plan(ctx context.Context, client *operate.Client, failures iter.Seq2[operate.DeadLetter, error], progress func(int)) ([]*Item, error) {
	var items []*Item
	seen := map[pipeline.Key]bool{}
	for f, err := range failures {
		if err != nil {
			return nil, err
		}
		item := &Item{ID: f.ID, Traceparent: f.Message.GetTraceparent(), Key: f.Key, Verdict: Wanted, request: requestOf(f.Message.GetWant())}
		switch {
		case f.Message.GetWant() == nil:
			item.Verdict = Unreadable
		case seen[f.Key]:
			item.Verdict = Older
		}
		seen[f.Key] = true
		items = append(items, item)
	}
	checked := &tally{report: progress}
	err := each(ctx, items, func(ctx context.Context, item *Item) error {
		defer checked.add()
		return Retry(ctx, func(ctx context.Context) (err error) {
			_, _, item.Verdict, err = current(ctx, client, item)
			return err
		})
	})
	return items, err
}

// each calls do for the items that are wanted, several at a time.
func each(ctx context.Context, items []*Item, do func(context.Context, *Item) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, item := range items {
		if item.Verdict != Wanted {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, item) })
	}
	return group.Wait()
}

// current reads what is wanted for a key and compares it with what failed.
func current(ctx context.Context, client *operate.Client, item *Item) (*v1.Want, uint64, Verdict, error) {
	want, sequence, err := client.LastWant(ctx, item.Key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && want == nil:
		return nil, 0, Gone, nil
	case errors.Is(err, pipeline.ErrMalformed):
		return nil, 0, Changed, nil
	case err != nil:
		return nil, 0, Wanted, fmt.Errorf("check failure %d: %w", item.ID, err)
	case requestOf(want) != item.request:
		return nil, 0, Changed, nil
	}
	return want, sequence, Wanted, nil
}

// Count returns how many items have each verdict.
func Count(items []*Item) map[Verdict]int {
	counts := map[Verdict]int{}
	for _, item := range items {
		counts[item.Verdict]++
	}
	return counts
}

// Check returns the verdict on one failure.
func Check(ctx context.Context, client *operate.Client, f operate.DeadLetter) (Verdict, error) {
	items, err := Plan(ctx, client, func(yield func(operate.DeadLetter, error) bool) { yield(f, nil) }, nil)
	if err != nil {
		return "", err
	}
	return items[0].Verdict, nil
}

// tally counts from several goroutines.
type tally struct {
	mu     sync.Mutex
	n      int
	report func(int)
}

func (t *tally) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.report != nil {
		t.report(t.n)
	}
}
