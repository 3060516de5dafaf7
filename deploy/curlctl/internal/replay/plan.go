// Package replay fetches failed keys again, and waits for the outcome.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Verdict on a selected failure.
type Verdict string

// The verdicts.
const (
	// Wanted: the failed request is still wanted.
	Wanted Verdict = "wanted"
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
)

// Item is a selected failure, or a key to refetch without one.
type Item struct {
	// ID of the failure (0: none).
	ID      uint64
	Key     pipeline.Key
	Verdict Verdict
	// End is valid for a Followed item.
	End End

	request keys.Request
}

// concurrency is the maximum number of concurrent reads or publishes.
const concurrency = 16

// Plan compares each failure with the current want and its timer. Only the newest of a key is replayed. Keys
// that were fetched since are replayed only with alsoRecovered. Progress, if set, is called with the
// number of checked failures.
func Plan(
	ctx context.Context, client *operate.Client, failures iter.Seq2[operate.DeadLetter, error], alsoRecovered bool,
	progress func(int),
) ([]*Item, error) {
	var items []*Item
	for f, err := range failures {
		if err != nil {
			return nil, err
		}
		item := &Item{
			ID: f.ID, Key: f.Key, Verdict: Wanted,
			request: keys.RequestOf(f.Message.GetWant()),
		}
		if f.Message.GetWant() == nil {
			item.Verdict = Unreadable
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b *Item) int { return cmp.Compare(b.ID, a.ID) })
	seen := map[pipeline.Key]bool{}
	for _, item := range items {
		if item.Verdict == Wanted && seen[item.Key] {
			item.Verdict = Older
		}
		seen[item.Key] = true
	}
	reader := keys.Reader{Client: client, Now: time.Now()}
	handled, err := reader.Handled(ctx)
	if err != nil {
		return nil, err
	}
	err = each(ctx, items, isWanted, progress, func(ctx context.Context, item *Item) error {
		return Retry(ctx, func(ctx context.Context) error {
			key, err := reader.One(ctx, item.Key, handled)
			if err != nil {
				return fmt.Errorf("check failure %d: %w", item.ID, err)
			}
			now := Verdict(keys.Now(item.request, key))
			if now == Gone || now == Changed || now == Recovered && !alsoRecovered {
				item.Verdict = now
			}
			return nil
		})
	})
	return items, err
}

func isWanted(item *Item) bool { return item.Verdict == Wanted }

// each calls do concurrently for selected items. Progress, if set, is called with the number of done items.
func each(
	ctx context.Context, items []*Item, selected func(*Item) bool, progress func(int),
	do func(context.Context, *Item) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	var done atomic.Int64
	for _, item := range items {
		if !selected(item) {
			continue
		}
		if ctx.Err() != nil {
			group.Go(func() error { return context.Cause(ctx) }) // Wait must return it, even if nothing runs
			break
		}
		group.Go(func() error {
			if err := do(ctx, item); err != nil {
				return err
			}
			if n := done.Add(1); progress != nil {
				progress(int(n))
			}
			return nil
		})
	}
	return group.Wait()
}

// current reads the want of a key and compares it with the failed request.
func current(ctx context.Context, client *operate.Client, item *Item) (operate.Want, Verdict, error) {
	want, err := client.Wanted(ctx, item.Key)
	switch {
	case errors.Is(err, pipeline.ErrMalformed):
		return want, Changed, nil
	case err != nil && item.ID > 0:
		return want, Wanted, fmt.Errorf("check failure %d: %w", item.ID, err)
	case err != nil:
		return want, Wanted, err
	case want.Sequence == 0:
		return want, Gone, nil
	case item.ID > 0 && keys.RequestOf(want.Want) != item.request:
		return want, Changed, nil
	}
	return want, Wanted, nil
}

// Count counts items by verdict.
func Count(items []*Item) map[Verdict]int {
	counts := map[Verdict]int{}
	for _, item := range items {
		counts[item.Verdict]++
	}
	return counts
}
