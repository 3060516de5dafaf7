package replay

import (
	"context"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Follower follows the outcome of replays by reading the streams.
type Follower struct {
	client *broker.Client
	// last is the last sequence in Failures before the first replay.
	last uint64
}

// Follow returns a follower. Call it before Publish.
func Follow(ctx context.Context, client *broker.Client) (*Follower, error) {
	failures, err := client.Stream(ctx, pipeline.DeadLetters)
	if err != nil {
		return nil, err
	}
	return &Follower{client: client, last: failures.CachedInfo().State.LastSeq}, nil
}

// Wait returns when the outcome of every replayed item is known, or ctx ends. Progress is called after each check with
// the number of the others.
func (f *Follower) Wait(ctx context.Context, items []*Item, progress func(pending int)) error {
	return poll(ctx, func(ctx context.Context) (bool, error) {
		err := f.check(ctx, items)
		pending := Pending(items)
		progress(pending)
		return pending == 0, err
	})
}

// Pending returns the number of replayed items without a known outcome.
func Pending(items []*Item) int {
	counts := Verdicts(items)
	return counts[Replayed] + counts[Already]
}

// check updates the verdict of all pending items.
func (f *Follower) check(ctx context.Context, items []*Item) error {
	handled, err := f.client.Handled(ctx)
	if err != nil {
		return err
	}
	var subjects []string
	for _, item := range items {
		if item.pending() { // the timer before the due: if it fires meanwhile, the due exists already
			subjects = append(subjects, item.Key.WantSubject(), item.Key.TimerSubject(), item.Key.DueSubject())
		}
	}
	last, err := f.client.LastMessages(ctx, subjects)
	if err != nil {
		return err
	}
	again := map[pipeline.Key]*broker.DeadLetter{}
	for failure, err := range f.client.DeadLetters(ctx, broker.DeadLetterFilter{}) {
		if err != nil {
			return err
		}
		if failure.ID <= f.last {
			break
		}
		if again[failure.Key] == nil { // the newest
			again[failure.Key] = &failure
		}
	}
	for _, item := range items {
		if item.pending() {
			item.Verdict = item.outcome(last, handled)
		}
		if failure := again[item.Key]; item.Verdict == Fetched && failure != nil {
			item.Verdict, item.NewFailure = FailedAgain, failure
		}
	}
	return nil
}

func (i *Item) pending() bool { return i.Verdict == Replayed || i.Verdict == Already }

// outcome returns Fetched if there are no further attempts, by the last messages of the key. The fetchers have handled
// all requests up to the sequence handled.
func (i *Item) outcome(last map[string]pipeline.Message, handled uint64) Verdict {
	want, _ := pipeline.DecodeWant(i.Key, last[i.Key.WantSubject()].Data)  // nil if it is missing or malformed
	timer, _ := pipeline.DecodeDue(i.Key, last[i.Key.TimerSubject()].Data) // likewise
	due, visible := last[i.Key.DueSubject()]
	retries := timer != nil && timer.GetCause() != v1.Cause_CAUSE_REFRESH && timer.GetCause() != v1.Cause_CAUSE_RECHECK
	switch {
	case want == nil, i.ID > 0 && keys.RequestOf(want) != i.request:
		return Superseded
	case !visible, due.Sequence > handled, retries:
		return i.Verdict
	}
	return Fetched
}

// Written waits until the writer has handled all results so far.
func (f *Follower) Written(ctx context.Context) (written bool, err error) {
	last := uint64(0)
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		stream, err := f.client.Stream(ctx, pipeline.Results)
		if err != nil {
			return false, err
		}
		if last == 0 {
			last = stream.CachedInfo().State.LastSeq
		}
		info, err := broker.Consumer(ctx, stream, pipeline.WriterConsumer)
		if err == nil {
			written = info.NumPending == 0 && info.NumAckPending == 0 || info.AckFloor.Stream >= last
		}
		return written, err
	})
	return written, err
}
