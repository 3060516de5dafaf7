package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// DeadLetterFilter selects dead letters; empty fields select all.
type DeadLetterFilter struct {
	// Reason is the name of a failure class, as in Events.
	Reason string
	// Host of the URL as weburl.HostOf returns it, or an IP address, which DeadLetters compares with the URLs.
	Host string
	// Namespace, Name and Key of the ConfigMap.
	Namespace, Name, Key string
	// Since (inclusive) and Until (exclusive) limit the time of the entry.
	Since, Until time.Time
	// Below is an exclusive upper limit of the ID, the cursor of a listing (0: no limit).
	Below uint64
}

// subject returns the part of the filter that the server can apply.
func (d DeadLetterFilter) subject() string {
	host := d.Host
	if d.hasAddress() {
		host = "" // subjects have no addresses
	}
	return pipeline.DeadLetterSubjects(d.Reason, host, pipeline.Key{Namespace: d.Namespace, Name: d.Name, Key: d.Key})
}

// Exact reports whether the subject alone selects the entries, so that the server can count and purge them.
func (d DeadLetterFilter) Exact() bool {
	return d.Since.IsZero() && d.Until.IsZero() && d.Below == 0 && !d.hasAddress()
}

// hasAddress reports whether Host is an IP address.
func (d DeadLetterFilter) hasAddress() bool { return weburl.IsAddress(d.Host) }

// DeadLetter is a fetch that failed for good, or a message that could not be handled.
type DeadLetter struct {
	// ID is the sequence in the stream of dead letters.
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
	r := pipeline.Range{Stream: pipeline.DeadLetters, Subject: f.subject(), Below: f.Below}
	all := decoded(c, c.backwards(ctx, r), deadLetter)
	return func(yield func(DeadLetter, error) bool) {
		for d, err := range all {
			switch {
			case err != nil:
			case d.At.Before(f.Since):
				return
			case !f.Until.IsZero() && !d.At.Before(f.Until),
				f.hasAddress() && !weburl.HostIs(d.Message.GetWant().GetUrl(), f.Host):
				continue
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// A stream is read backwards in windows of windowFirst to windowMax sequences, with about windowMessages messages each.
const (
	windowFirst    = 64
	windowMax      = 1 << 16
	windowMessages = 256
)

// backwards reads messages of a stream, newest first, and buffers a few hundred at a time. It stops at the
// first error.
func (c *Client) backwards(ctx context.Context, r pipeline.Range) iter.Seq2[pipeline.Message, error] {
	return func(yield func(pipeline.Message, error) bool) {
		stream, err := c.Stream(ctx, r.Stream)
		if err != nil {
			yield(pipeline.Message{}, err)
			return
		}
		state := stream.CachedInfo().State
		top, bound := state.LastSeq+1, max(state.FirstSeq, 1)
		if r.Below > 0 {
			top = min(top, r.Below)
		}
		for span := uint64(windowFirst); top > bound; {
			r.From, r.Below = bound, top
			if top-bound > span {
				r.From = top - span
			}
			var window []pipeline.Message
			for m, err := range c.Scan(ctx, r) {
				if err != nil {
					yield(m, err)
					return
				}
				window = append(window, m)
			}
			for _, m := range slices.Backward(window) {
				if !yield(m, nil) {
					return
				}
			}
			span = min(max(span*windowMessages/uint64(max(len(window), 1)), windowFirst), windowMax)
			top = r.From
		}
	}
}

// DeadLetter reads the dead letter with an ID. The error wraps ErrNoMessage if it does not exist, and ErrSubject
// if the message is not a dead letter.
func (c *Client) DeadLetter(ctx context.Context, id uint64) (DeadLetter, error) {
	m, err := c.MessageAt(ctx, pipeline.DeadLetters, id)
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
	stream, err := c.Stream(ctx, pipeline.DeadLetters)
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
	stream, err := c.Stream(ctx, pipeline.DeadLetters)
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
	stream, err := c.Stream(ctx, pipeline.DeadLetters)
	if err != nil {
		return 0, err
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(f.subject())); err != nil {
		return 0, fmt.Errorf("purge dead letters: %w", err)
	}
	return Total(counts), nil
}
