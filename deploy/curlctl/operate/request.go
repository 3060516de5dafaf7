package operate

import (
	"context"
	"fmt"
	"iter"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Timer is the pending timer of a key.
type Timer struct {
	Key pipeline.Key
	// At is when it fires, SetAt when it was set.
	At, SetAt time.Time
	// Due is published when it fires.
	Due *v1.Due
	// URL of the want may hold secrets.
	URL string
}

// WithoutWant returns the timer without the content of its want and without fields that
// only a fetcher needs. That saves five sixths of the memory.
func (t Timer) WithoutWant() Timer {
	d := t.Due
	t.Due = &v1.Due{
		WantSequence: d.GetWantSequence(), Cause: d.GetCause(), Attempts: d.GetAttempts(), Reported: d.GetReported(),
		StatusCode: d.GetStatusCode(), FirstFailedAt: d.GetFirstFailedAt(), FreshUntil: d.GetFreshUntil(),
		ReplayOf: d.GetReplayOf(), WaitsFor: d.GetWaitsFor(),
	}
	return t
}

// PendingTimer returns the pending timer of a key. The error wraps ErrNoMessage if there
// is none.
func (c *Client) PendingTimer(ctx context.Context, key pipeline.Key) (Timer, error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.Timer())
	if err != nil {
		return Timer{}, fmt.Errorf("read timer of %s: %w", key, err)
	}
	return timer(m)
}

// LastDue returns the sequence of the last due of a key. The error wraps ErrNoMessage if
// there is none.
func (c *Client) LastDue(ctx context.Context, key pipeline.Key) (sequence uint64, err error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.Due())
	if err != nil {
		return 0, fmt.Errorf("read due of %s: %w", key, err)
	}
	return m.Sequence, nil
}

// Timers reads the pending timers of a namespace and name; empty: all.
func (c *Client) Timers(ctx context.Context, namespace, name string) iter.Seq2[Timer, error] {
	return decoded(c, c.requests(ctx, pipeline.KindTimer.Subjects(namespace, name), 0), timer)
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
	return Timer{Key: key, At: at, SetAt: m.Time, Due: due, URL: due.GetWant().GetUrl()}, err
}

// Reason of the last attempt if that failed, as in Events.
func (t Timer) Reason() string {
	if t.Due.GetReported() == v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		return ""
	}
	return pipeline.Reason(t.Due.GetReported())
}

// Dues reads the fired timers and replays from a sequence on, like Timers. Both times of the result are
// those of publishing.
func (c *Client) Dues(ctx context.Context, namespace, name string, from uint64) iter.Seq2[Timer, error] {
	dues := c.requests(ctx, pipeline.KindDue.Subjects(namespace, name), from)
	return decoded(c, dues, func(m pipeline.Message) (Timer, error) {
		_, key, err := pipeline.ParseSubject(m.Subject)
		if err != nil {
			return Timer{}, err
		}
		due, err := pipeline.DecodeDue(key, m.Data)
		return Timer{Key: key, At: m.Time, SetAt: m.Time, Due: due}, err
	})
}

// Want is the want of a key.
type Want struct {
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it was published.
	At   time.Time
	Want *v1.Want
}

// Wants reads the wants of a namespace and name, without tombstones; empty: all.
func (c *Client) Wants(ctx context.Context, namespace, name string) iter.Seq2[Want, error] {
	all := decoded(c, c.requests(ctx, pipeline.KindWant.Subjects(namespace, name), 0), want)
	return func(yield func(Want, error) bool) {
		for w, err := range all {
			if tombstone := err == nil && w.Want == nil; !tombstone && !yield(w, err) {
				return
			}
		}
	}
}

func want(m pipeline.Message) (w Want, err error) {
	w = Want{Sequence: m.Sequence, At: m.Time}
	if _, w.Key, err = pipeline.ParseSubject(m.Subject); err == nil {
		w.Want, err = pipeline.DecodeWant(w.Key, m.Data)
	}
	return w, err
}

// requests reads the messages of a subject from a sequence on.
func (c *Client) requests(ctx context.Context, subject string, from uint64) iter.Seq2[pipeline.Message, error] {
	return c.Scan(ctx, pipeline.Range{Stream: pipeline.Requests, Subject: subject, From: from})
}
