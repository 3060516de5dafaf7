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

// Uncounted as ConsumeOptions.MaxUnended: no message is ever poison, and no
// handling is recorded.
const Uncounted = math.MaxUint64

// begunTTL is how long the record of a handling is kept: longer than the pause
// that Kubernetes makes between two starts of a process that crashes.
const begunTTL = time.Hour

// begunSubject is where it is recorded that a handling of a message began. The
// last token of the prefix keeps it apart from what consumers and scans read.
func begunSubject(subject string) string { return begunPrefix + subject }

// begin returns how many handlings of a message began and did not end, and whether
// that could be read, and records that one more begins, unless these are too many.
// The number of deliveries is no measure of that: it counts what was given back,
// what waited in a buffer, and what ended and is tried again.
//
// A message that is delivered for the first time costs nothing, so that a
// process may die of it once without a record. What cannot be read or recorded
// holds no message up.
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

// end takes back what begin has recorded, if it could read what was there. That
// comes before the acknowledgement, after which the message may already begin
// elsewhere. A handling that began earlier may have ended meanwhile: then less is
// left. A panic is no end; that of the first delivery is recorded here.
func (c *Consumer) end(ctx context.Context, d *Delivery, with Disposition, unended uint64, read bool) {
	ctx = context.WithoutCancel(ctx)
	panicked := errors.Is(with.err, ErrPanic)
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

// unended returns how many handlings of a message are recorded as begun without
// an end.
func (c *Client) unended(ctx context.Context, d *Delivery) (uint64, error) {
	m, err := c.LastMessage(ctx, Requests, begunSubject(d.Subject()))
	if errors.Is(err, ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read how often a handling of %s began: %w", d.Subject(), err)
	}
	begun := new(v1.Begun)
	if err := proto.Unmarshal(m.Data, begun); err != nil {
		return 0, fmt.Errorf("read how often a handling of %s began: %w (%w)", d.Subject(), ErrMalformed, err)
	}
	if begun.GetSequence() != d.Sequence() { // of a message that this one has replaced
		return 0, nil
	}
	return begun.GetUnended(), nil
}

// recordUnended records how many handlings of a message began without an end.
func (c *Client) recordUnended(ctx context.Context, d *Delivery, unended uint64) error {
	data, err := proto.Marshal(&v1.Begun{Sequence: d.Sequence(), Unended: unended})
	if err != nil {
		return fmt.Errorf("encode how often a handling of %s began: %w", d.Subject(), err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m := nats.NewMsg(begunSubject(d.Subject()))
	m.Data = data
	if _, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Requests), jetstream.WithMsgTTL(begunTTL)); err != nil {
		return fmt.Errorf("record how often a handling of %s began: %w", d.Subject(), err)
	}
	return nil
}
