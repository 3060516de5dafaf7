package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// NextFetch is the next fetch of a key: a timer, or a due, which a timer or a replay has published.
type NextFetch struct {
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when the timer fires, and SetAt when it was set. For a due, both are its publish time.
	At, SetAt time.Time
	// Fired means that no timer has to fire for it.
	Fired bool
	// Due is published when the timer fires.
	Due *v1.Due
	// URL of the want, which may hold secrets.
	URL string
}

// PendingTimer returns the pending timer of a key. The error wraps ErrNoMessage if there is none.
func (c *Client) PendingTimer(ctx context.Context, key pipeline.Key) (NextFetch, error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.TimerSubject())
	if err != nil {
		return NextFetch{}, fmt.Errorf("read timer of %s: %w", key, err)
	}
	return nextFetch(m)
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
		Key: key, Sequence: m.Sequence, At: at, SetAt: m.Time, Fired: kind == pipeline.KindDue, Due: due,
		URL: due.GetWant().GetUrl(),
	}, err
}

// Reason returns why the last attempt failed, as in Events (empty: it did not fail).
func (n NextFetch) Reason() string {
	if n.Due.GetReported() == failure.Unspecified {
		return ""
	}
	return failure.Reason(n.Due.GetReported())
}

// Dues reads fired timers and replays from a sequence on, like Timers.
func (c *Client) Dues(ctx context.Context, namespace, name string, from uint64) iter.Seq2[NextFetch, error] {
	return decoded(c, c.requests(ctx, pipeline.KindDue.Subjects(namespace, name), from), nextFetch)
}

// StoredWant is a want as stored in the stream.
type StoredWant struct {
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it was published, if it was read from a list.
	At   time.Time
	Want *v1.Want
}

// Wanted returns the want of a key. A StoredWant without a Sequence means that the key is not wanted. The
// error wraps pipeline.ErrMalformed if the want cannot be decoded.
func (c *Client) Wanted(ctx context.Context, key pipeline.Key) (StoredWant, error) {
	want, sequence, err := c.LastWant(ctx, key)
	if errors.Is(err, pipeline.ErrNoMessage) || err == nil && want == nil {
		return StoredWant{}, nil
	}
	return StoredWant{Key: key, Sequence: sequence, Want: want}, err
}

// Wants reads the wants of a namespace and name, without tombstones; empty: all.
func (c *Client) Wants(ctx context.Context, namespace, name string) iter.Seq2[StoredWant, error] {
	all := decoded(c, c.requests(ctx, pipeline.KindWant.Subjects(namespace, name), 0), want)
	return func(yield func(StoredWant, error) bool) {
		for w, err := range all {
			if tombstone := err == nil && w.Want == nil; !tombstone && !yield(w, err) {
				return
			}
		}
	}
}

// requestsAtOnce is the number of keys whose requests are read at once, which limits memory.
const requestsAtOnce = pipeline.MaxLastMessages / 3

// Requests visits each of the given keys that is wanted, with its next fetch, or the last one that was due.
func (c *Client) Requests(ctx context.Context, keys []pipeline.Key, visit func(StoredWant, NextFetch)) error {
	for some := range slices.Chunk(keys, requestsAtOnce) {
		var subjects []string
		for _, key := range some { // the timer before the due: if it fires meanwhile, the due exists already
			subjects = append(subjects, key.WantSubject(), key.TimerSubject(), key.DueSubject())
		}
		last, err := c.LastMessages(ctx, subjects)
		if err != nil {
			return err
		}
		for _, key := range some {
			w, err := want(last[key.WantSubject()])
			next, none := nextFetch(last[key.TimerSubject()])
			if none != nil {
				next, _ = nextFetch(last[key.DueSubject()])
			}
			if err == nil && w.Want != nil {
				visit(w, next)
			}
		}
	}
	return nil
}

func want(m pipeline.Message) (w StoredWant, err error) {
	w = StoredWant{Sequence: m.Sequence, At: m.Time}
	if _, w.Key, err = pipeline.ParseSubject(m.Subject); err == nil {
		w.Want, err = pipeline.DecodeWant(w.Key, m.Data)
	}
	return w, err
}

// requests reads the messages of a subject from a sequence on.
func (c *Client) requests(ctx context.Context, subject string, from uint64) iter.Seq2[pipeline.Message, error] {
	return c.Scan(ctx, pipeline.Range{Stream: pipeline.Requests, Subject: subject, From: from})
}
