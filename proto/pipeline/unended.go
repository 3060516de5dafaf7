package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Uncounted as ConsumeOptions.MaxUnended means that no message is ever poison, and that no handling
// is recorded.
const Uncounted = math.MaxUint64

// begunTTL is how long the record of a handling is kept: longer than the crash-loop back-off of
// Kubernetes.
const begunTTL = time.Hour

// begunSubject returns the subject of the record about a message. Its prefix hides it from consumers
// and scans of that message's subject.
func begunSubject(subject string) string { return begunPrefix + subject }

// begin returns the number of handlings of a message that began and did not end, and whether it read
// that number. Unless there are too many, it records one more. The number of deliveries is no
// substitute: it includes deliveries that were returned, waited in a buffer, or ended in a retry.
//
// The first delivery of a message costs nothing, so a process may crash once without a record.
// Errors of reading or recording do not stop a message.
func (c *Consumer) begin(ctx context.Context, d *Delivery) (unended uint64, read bool) {
	if d.Number() < 2 || c.options.MaxUnended == Uncounted {
		return 0, false
	}
	unended, err := c.client.unended(ctx, d)
	if err != nil {
		return 0, false
	}
	if unended < c.options.MaxUnended {
		_ = c.client.recordUnended(ctx, d, unended+1)
	}
	return unended, true
}

// end takes back the handling that begin recorded, if begin read the count. It runs before the
// acknowledgement, after which another process may handle the message. If an earlier handling has
// ended meanwhile, the recorded count is lower and stays. A handling that panics has not ended; if
// that happens on the first delivery, end records it.
func (c *Consumer) end(ctx context.Context, d *Delivery, disposition Disposition, unended uint64, read bool) {
	ctx = context.WithoutCancel(ctx)
	panicked := errors.Is(disposition.err, ErrPanic)
	switch {
	case panicked && d.Number() == 1 && c.options.MaxUnended != Uncounted:
		_ = c.client.recordUnended(ctx, d, 1)
	case !panicked && read:
		if left, err := c.client.unended(ctx, d); err == nil {
			unended = min(unended, left)
		}
		_ = c.client.recordUnended(ctx, d, unended)
	}
}

// unended returns the recorded number of handlings of a message that did not end.
func (c *Client) unended(ctx context.Context, d *Delivery) (uint64, error) {
	m, err := c.LastMessage(ctx, Requests, begunSubject(d.Subject()))
	if errors.Is(err, ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read unended handlings of %s: %w", d.Subject(), err)
	}
	begun := new(v1.Begun)
	if err := proto.Unmarshal(m.Data, begun); err != nil {
		return 0, fmt.Errorf("read unended handlings of %s: %w (%w)", d.Subject(), ErrMalformed, err)
	}
	if begun.GetSequence() != d.Sequence() { // the record is about a message that this one replaced
		return 0, nil
	}
	return begun.GetUnended(), nil
}

// recordUnended records the number of handlings of a message that did not end.
func (c *Client) recordUnended(ctx context.Context, d *Delivery, unended uint64) error {
	data, err := proto.Marshal(&v1.Begun{Sequence: d.Sequence(), Unended: unended})
	if err != nil {
		return fmt.Errorf("encode unended handlings of %s: %w", d.Subject(), err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m := nats.NewMsg(begunSubject(d.Subject()))
	m.Data = data
	if _, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Requests),
		jetstream.WithMsgTTL(begunTTL)); err != nil {
		return fmt.Errorf("record unended handlings of %s: %w", d.Subject(), err)
	}
	return nil
}
