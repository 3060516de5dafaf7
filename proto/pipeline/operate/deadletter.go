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

// errInexact means that more would be selected than was asked for.
var errInexact = errors.New("the server cannot select by time, ID or address")

// DeadLetterFilter selects dead letters; empty fields select all.
type DeadLetterFilter struct {
	// Reason is the name of a failure class, as in Events.
	Reason string
	// Host of the URL as pipeline.HostOf returns it, or an address, for which
	// DeadLetters looks into the URLs.
	Host string
	// Namespace, Name and Key of the ConfigMap.
	Namespace, Name, Key string
	// Since and Until bound when the entry was kept: from Since on, before
	// Until.
	Since, Until time.Time
	// Below bounds the ID: only entries before that one; 0: no bound. It is the
	// cursor of a listing that goes on.
	Below uint64
}

// subject returns the subject filter for all but the times, which the server
// applies.
func (f DeadLetterFilter) subject() string {
	host := f.Host
	if f.address() {
		host = "" // older entries have the address itself in their subjects
	}
	return pipeline.DeadLetterSubjects(f.Reason, host, pipeline.Key{Namespace: f.Namespace, Name: f.Name, Key: f.Key})
}

// Exact reports whether a subject selects what the filter does, so that the server
// can count and purge by itself: it knows no times, no bound of the ID, and no
// addresses.
func (f DeadLetterFilter) Exact() bool {
	return f.Since.IsZero() && f.Until.IsZero() && f.Below == 0 && !f.address()
}

// address reports whether Host is one.
func (f DeadLetterFilter) address() bool { return pipeline.IsAddress(f.Host) }

// elsewhere reports whether the filter asks for an address that a failure is
// not of.
func (f DeadLetterFilter) elsewhere(message *v1.DeadLetter) bool {
	return f.address() && !pipeline.HostIs(message.GetWant().GetUrl(), f.Host)
}

// DeadLetter is a message that could not be handled, or a fetch that failed for
// good, and where the stream keeps it.
type DeadLetter struct {
	// ID is the sequence in Failures.
	ID uint64
	// At is when the entry was kept.
	At time.Time
	// Reason and Host are those of the subject.
	Reason, Host string
	// Key that failed.
	Key pipeline.Key
	// Message is what was kept; never nil.
	Message *v1.DeadLetter
}

// DeadLetters reads dead letters, the newest first. It holds a few hundred in
// memory at a time, however many there are. An error that is Unreadable does not
// end it.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for m, err := range c.backwards(ctx, pipeline.Range{Stream: pipeline.Failures, Subject: f.subject(), Below: f.Below}) {
			if err != nil {
				yield(DeadLetter{}, err)
				return
			}
			if !f.Since.IsZero() && m.Time.Before(f.Since) {
				return
			}
			if !f.Until.IsZero() && !m.Time.Before(f.Until) {
				continue
			}
			found, err := deadLetter(m)
			if err == nil && f.elsewhere(found.Message) {
				continue
			}
			if !yield(found, err) || err != nil && !pipeline.Unreadable(err) {
				return
			}
		}
	}
}

// DeadLetter reads the dead letter with an id. The error wraps ErrNoMessage when
// there is none any more, and ErrSubject when the id is not one of a failure.
func (c *Client) DeadLetter(ctx context.Context, id uint64) (DeadLetter, error) {
	m, err := c.MessageAt(ctx, pipeline.Failures, id)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", id, err)
	}
	return deadLetter(m)
}

// deadLetter decodes an entry. One whose payload cannot be read still has what
// is in its subject.
func deadLetter(m pipeline.Message) (DeadLetter, error) {
	reason, host, key, err := pipeline.ParseDeadLetter(m.Subject)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("read dead letter %d: %w", m.Sequence, err)
	}
	message := new(v1.DeadLetter)
	if err := proto.Unmarshal(m.Data, message); err != nil {
		message = &v1.DeadLetter{Payload: m.Data, Subject: m.Subject}
	}
	return DeadLetter{ID: m.Sequence, At: m.Time, Reason: reason, Host: host, Key: key, Message: message}, nil
}

// CountDeadLetters returns how many dead letters each reason and host has, without
// reading them; those of a subject that is not one of the pipeline have neither.
// The filter must be Exact.
func (c *Client) CountDeadLetters(ctx context.Context, f DeadLetterFilter) (map[ReasonHost]uint64, error) {
	if !f.Exact() {
		return nil, fmt.Errorf("count dead letters: %w", errInexact)
	}
	stream, err := c.JetStream().Stream(ctx, pipeline.Failures)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", pipeline.Failures, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(f.subject()))
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	counts := map[ReasonHost]uint64{}
	for subject, n := range info.State.Subjects {
		reason, host, _, err := pipeline.ParseDeadLetter(subject)
		if err != nil {
			reason, host = "", ""
		}
		counts[ReasonHost{Reason: reason, Host: host}] += n
	}
	return counts, nil
}

// ReasonHost is what dead letters are counted by.
type ReasonHost struct {
	// Reason is the name of a failure class, as in Events.
	Reason string
	// Host of the URL, without port.
	Host string
}

// DeleteDeadLetter removes the entry with an id; one that is gone is no error.
func (c *Client) DeleteDeadLetter(ctx context.Context, id uint64) error {
	stream, err := c.JetStream().Stream(ctx, pipeline.Failures)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", pipeline.Failures, err)
	}
	if err := stream.DeleteMsg(ctx, id); err != nil {
		if _, gone := c.DeadLetter(ctx, id); errors.Is(gone, pipeline.ErrNoMessage) {
			return nil
		}
		return fmt.Errorf("delete dead letter %d: %w", id, err)
	}
	return nil
}

// PurgeDeadLetters removes all entries that a filter selects, which must be Exact,
// and returns how many.
func (c *Client) PurgeDeadLetters(ctx context.Context, f DeadLetterFilter) (uint64, error) {
	if !f.Exact() {
		return 0, fmt.Errorf("purge dead letters: %w", errInexact)
	}
	stream, err := c.JetStream().Stream(ctx, pipeline.Failures)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", pipeline.Failures, err)
	}
	counts, err := c.CountDeadLetters(ctx, f)
	if err != nil {
		return 0, err
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(f.subject())); err != nil {
		return 0, fmt.Errorf("purge dead letters: %w", err)
	}
	n := uint64(0)
	for _, count := range counts {
		n += count
	}
	return n, nil
}
