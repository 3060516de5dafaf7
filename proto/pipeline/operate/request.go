package operate

import (
	"context"
	"fmt"
	"iter"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Timer is a pending timer of a key.
type Timer struct {
	// Key that it belongs to.
	Key pipeline.Key
	// At is when it fires.
	At time.Time
	// SetAt is when it was set.
	SetAt time.Time
	// Due is what will be published then.
	Due *v1.Due
}

// WithoutWant returns the timer without what its want holds, too, and without what
// only a fetch needs: where many are held, that is a sixth of the memory.
func (t Timer) WithoutWant() Timer {
	d := t.Due
	t.Due = &v1.Due{
		WantSequence: d.GetWantSequence(), Cause: d.GetCause(), Attempts: d.GetAttempts(), Reported: d.GetReported(), StatusCode: d.GetStatusCode(),
		FirstFailedAt: d.GetFirstFailedAt(), FreshUntil: d.GetFreshUntil(), ReplayOf: d.GetReplayOf(), WaitsFor: d.GetWaitsFor(),
	}
	return t
}

// PendingTimer returns the pending timer of a key. The error wraps ErrNoMessage
// when there is none.
func (c *Client) PendingTimer(ctx context.Context, key pipeline.Key) (Timer, error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.Timer())
	if err != nil {
		return Timer{}, fmt.Errorf("read timer of %s: %w", key, err)
	}
	return timer(m)
}

// LastDue returns the sequence of the last message that asked for another look
// at a key. The error wraps ErrNoMessage when there is none.
func (c *Client) LastDue(ctx context.Context, key pipeline.Key) (sequence uint64, err error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.Due())
	if err != nil {
		return 0, fmt.Errorf("read due of %s: %w", key, err)
	}
	return m.Sequence, nil
}

// Timers reads the pending timers of a namespace and name; empty: all. An error
// that is Unreadable does not end it.
func (c *Client) Timers(ctx context.Context, namespace, name string) iter.Seq2[Timer, error] {
	return func(yield func(Timer, error) bool) {
		for m, err := range c.Scan(ctx, pipeline.Range{Stream: pipeline.Requests, Subject: pipeline.KindTimer.Subjects(namespace, name)}) {
			var t Timer
			if err == nil {
				t, err = timer(m)
			}
			if !yield(t, err) || err != nil && !pipeline.Unreadable(err) {
				return
			}
		}
	}
}

func timer(m pipeline.Message) (Timer, error) {
	_, key, err := pipeline.ParseSubject(m.Subject)
	if err != nil {
		return Timer{}, err
	}
	at, err := pipeline.FiresAt(m)
	if err != nil {
		return Timer{}, err
	}
	due, err := pipeline.DecodeDue(key, m.Data)
	return Timer{Key: key, At: at, SetAt: m.Time, Due: due}, err
}

// Want is the want of a key and where the stream keeps it.
type Want struct {
	// Key that it belongs to.
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it was published.
	At time.Time
	// Want is what is asked for.
	Want *v1.Want
}

// Wants reads what is wanted for a namespace and name, without tombstones;
// empty: all. An error that is Unreadable does not end it.
func (c *Client) Wants(ctx context.Context, namespace, name string) iter.Seq2[Want, error] {
	return func(yield func(Want, error) bool) {
		for m, err := range c.Scan(ctx, pipeline.Range{Stream: pipeline.Requests, Subject: pipeline.KindWant.Subjects(namespace, name)}) {
			w := Want{Sequence: m.Sequence, At: m.Time}
			if err == nil {
				if _, w.Key, err = pipeline.ParseSubject(m.Subject); err == nil {
					w.Want, err = pipeline.DecodeWant(w.Key, m.Data)
				}
			}
			if err == nil && w.Want == nil {
				continue
			}
			if !yield(w, err) || err != nil && !pipeline.Unreadable(err) {
				return
			}
		}
	}
}

// PauseFetching stops the delivery of requests to all fetchers until a time;
// nothing is lost. It publishes to
// $JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher.
func (c *Client) PauseFetching(ctx context.Context, until time.Time) error {
	if _, err := c.JetStream().PauseConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer, until); err != nil {
		return fmt.Errorf("pause consumer %s of stream %s: %w", pipeline.FetcherConsumer, pipeline.Requests, err)
	}
	return nil
}

// ResumeFetching lets the delivery go on, by the same subject.
func (c *Client) ResumeFetching(ctx context.Context) error {
	if _, err := c.JetStream().ResumeConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer); err != nil {
		return fmt.Errorf("resume consumer %s of stream %s: %w", pipeline.FetcherConsumer, pipeline.Requests, err)
	}
	return nil
}
