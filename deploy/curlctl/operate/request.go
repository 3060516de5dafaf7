package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// NextFetch is the next fetch of a key: a timer, or a due, which a timer or a replay has published.
type NextFetch struct {
	Key pipeline.Key
	// At is when the timer fires, and SetAt when it was set. For a due, both are its publish time.
	At, SetAt time.Time
	// IsDue means that no timer has to fire for it.
	IsDue bool
	// Due is published when the timer fires.
	Due *v1.Due
	// URL of the want, which may hold secrets.
	URL string
}

// PendingTimer returns the pending timer of a key. The error wraps ErrNoMessage if there is none.
func (c *Client) PendingTimer(ctx context.Context, key pipeline.Key) (NextFetch, error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.Timer())
	if err != nil {
		return NextFetch{}, fmt.Errorf("read timer of %s: %w", key, err)
	}
	return nextFetch(m)
}

// LastDue returns the sequence of the last due of a key. The error wraps ErrNoMessage if there is none.
func (c *Client) LastDue(ctx context.Context, key pipeline.Key) (sequence uint64, err error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.Due())
	if err != nil {
		return 0, fmt.Errorf("read due of %s: %w", key, err)
	}
	return m.Sequence, nil
}

// Timers reads the pending timers of a namespace and name; empty: all.
func (c *Client) Timers(ctx context.Context, namespace, name string) iter.Seq2[NextFetch, error] {
	return decoded(c, c.requests(ctx, pipeline.KindTimer.Subjects(namespace, name), 0), nextFetch)
}

// nextFetch decodes a timer or a due.
func nextFetch(m pipeline.Message) (NextFetch, error) {
	kind, key, err := pipeline.ParseSubject(m.Subject)
	if err != nil {
		return NextFetch{}, err
	}
	at := m.Time
	if kind == pipeline.KindTimer {
		if at, err = pipeline.FiresAt(m); err != nil {
			return NextFetch{}, err
		}
	}
	due, err := pipeline.DecodeDue(key, m.Data)
	return NextFetch{
		Key: key, At: at, SetAt: m.Time, IsDue: kind == pipeline.KindDue, Due: due, URL: due.GetWant().GetUrl(),
	}, err
}

// Reason returns why the last attempt failed, as in Events (empty: it did not fail).
func (n NextFetch) Reason() string {
	if n.Due.GetReported() == v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		return ""
	}
	return pipeline.Reason(n.Due.GetReported())
}

// Dues reads fired timers and replays from a sequence on, like Timers.
func (c *Client) Dues(ctx context.Context, namespace, name string, from uint64) iter.Seq2[NextFetch, error] {
	return decoded(c, c.requests(ctx, pipeline.KindDue.Subjects(namespace, name), from), nextFetch)
}

// Want is a want as stored in the stream.
type Want struct {
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it was published, if it was read from a list.
	At   time.Time
	Want *v1.Want
}

// Wanted returns the want of a key. A Want without a Sequence means that the key is not wanted. The
// error wraps pipeline.ErrMalformed if the want cannot be decoded.
func (c *Client) Wanted(ctx context.Context, key pipeline.Key) (Want, error) {
	want, sequence, err := c.LastWant(ctx, key)
	if errors.Is(err, pipeline.ErrNoMessage) || err == nil && want == nil {
		return Want{}, nil
	}
	return Want{Key: key, Sequence: sequence, Want: want}, err
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
