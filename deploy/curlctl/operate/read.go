package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

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

// DeadLetterFilter selects dead letters; empty fields select all.
type DeadLetterFilter struct {
	// Reason is the name of a failure class, as in Events.
	Reason string
	// Host of the URL as pipeline.HostOf returns it, or an IP address, which DeadLetters compares with the URLs.
	Host string
	// Namespace, Name and Key of the ConfigMap.
	Namespace, Name, Key string
	// Since (inclusive) and Until (exclusive) limit the time of the entry.
	Since, Until time.Time
	// Below is an exclusive upper limit of the ID, the cursor of a listing (0: no limit).
	Below uint64
}

// subject returns the part of the filter that the server can apply.
func (f DeadLetterFilter) subject() string {
	host := f.Host
	if f.address() {
		host = "" // subjects have no addresses
	}
	return pipeline.DeadLetterSubjects(f.Reason, host, pipeline.Key{Namespace: f.Namespace, Name: f.Name, Key: f.Key})
}

// Exact reports whether the subject alone selects the entries, so that the server can count and purge them.
func (f DeadLetterFilter) Exact() bool {
	return f.Since.IsZero() && f.Until.IsZero() && f.Below == 0 && !f.address()
}

// address reports whether Host is an IP address.
func (f DeadLetterFilter) address() bool { return pipeline.IsAddress(f.Host) }

// DeadLetter is a fetch that failed for good, or a message that could not be handled.
type DeadLetter struct {
	// ID is the sequence in the stream Failures.
	ID uint64
	// At is the time of the entry.
	At time.Time
	// ReasonHost comes from the subject.
	ReasonHost
	Key pipeline.Key
	// Message is never nil.
	Message *v1.DeadLetter
}

// DeadLetters reads dead letters, newest first. It buffers a few hundred at a time.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	r := pipeline.Range{Stream: pipeline.Failures, Subject: f.subject(), Below: f.Below}
	all := decoded(c, c.backwards(ctx, r), deadLetter)
	return func(yield func(DeadLetter, error) bool) {
		for d, err := range all {
			switch {
			case err != nil:
			case d.At.Before(f.Since):
				return
			case !f.Until.IsZero() && !d.At.Before(f.Until),
				f.address() && !pipeline.HostIs(d.Message.GetWant().GetUrl(), f.Host):
				continue
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// DeadLetter reads the dead letter with an ID. The error wraps ErrNoMessage if it does not exist, and ErrSubject
// if the message is not a dead letter.
func (c *Client) DeadLetter(ctx context.Context, id uint64) (DeadLetter, error) {
	m, err := c.MessageAt(ctx, pipeline.Failures, id)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", id, err)
	}
	return deadLetter(m)
}

// deadLetter decodes an entry. If the payload is unreadable, Message has its bytes.
func deadLetter(m pipeline.Message) (DeadLetter, error) {
	d := DeadLetter{ID: m.Sequence, At: m.Time, Message: new(v1.DeadLetter)}
	var err error
	if d.Reason, d.Host, d.Key, err = pipeline.ParseDeadLetter(m.Subject); err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", m.Sequence, err)
	}
	if err := proto.Unmarshal(m.Data, d.Message); err != nil {
		d.Message = &v1.DeadLetter{Payload: m.Data, Subject: m.Subject}
	}
	return d, nil
}

// ReasonHost groups dead letters.
type ReasonHost struct {
	// Reason is the name of a failure class, as in Events.
	Reason string `json:"reason"`
	// Host of the URL, without port.
	Host string `json:"host"`
}

// CountDeadLetters counts dead letters by reason and host. If the filter is Exact, the
// server counts. Otherwise they are read.
func (c *Client) CountDeadLetters(ctx context.Context, f DeadLetterFilter) (map[ReasonHost]uint64, error) {
	counts := map[ReasonHost]uint64{}
	if !f.Exact() {
		for d, err := range c.DeadLetters(ctx, f) {
			if err != nil {
				return nil, err
			}
			counts[d.ReasonHost]++
		}
		return counts, nil
	}
	stream, err := c.Stream(ctx, pipeline.Failures)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(f.subject()))
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	for subject, n := range info.State.Subjects {
		reason, host, _, _ := pipeline.ParseDeadLetter(subject) // empty on error
		counts[ReasonHost{Reason: reason, Host: host}] += n
	}
	return counts, nil
}

// Total adds up counts.
func Total(counts map[ReasonHost]uint64) (n int) {
	for _, count := range counts {
		n += int(count)
	}
	return n
}

// DeleteDeadLetter removes the entry with an ID. A missing entry is not an error.
func (c *Client) DeleteDeadLetter(ctx context.Context, id uint64) error {
	stream, err := c.Stream(ctx, pipeline.Failures)
	if err != nil {
		return err
	}
	if err := stream.DeleteMsg(ctx, id); err != nil {
		if _, gone := c.DeadLetter(ctx, id); errors.Is(gone, pipeline.ErrNoMessage) {
			return nil
		}
		return fmt.Errorf("delete dead letter %d: %w", id, err)
	}
	return nil
}

// PurgeDeadLetters removes dead letters and returns their number. If the filter is Exact, the server
// purges. Otherwise they are deleted one by one.
func (c *Client) PurgeDeadLetters(ctx context.Context, f DeadLetterFilter) (removed int, err error) {
	if !f.Exact() {
		for d, err := range c.DeadLetters(ctx, f) {
			if err == nil {
				err = c.DeleteDeadLetter(ctx, d.ID)
			}
			if err != nil {
				return removed, err
			}
			removed++
		}
		return removed, nil
	}
	counts, err := c.CountDeadLetters(ctx, f)
	if err != nil {
		return 0, err
	}
	stream, err := c.Stream(ctx, pipeline.Failures)
	if err != nil {
		return 0, err
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(f.subject())); err != nil {
		return 0, fmt.Errorf("purge dead letters: %w", err)
	}
	return Total(counts), nil
}
