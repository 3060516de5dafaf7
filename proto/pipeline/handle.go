package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DefaultMaxUnended is how many handlings of a message may begin without an end.
const DefaultMaxUnended = 5

// errPoison means that a message was handled again and again, and no
// handling came to an end.
var errPoison = errors.New("message was handled again and again without an end")

// Consume reads messages and calls handle for each in a goroutine of its own
// until ctx is done. It waits for the consumer to exist and comes back to it
// when it was deleted, or the stream or the whole server was.
//
// It is the one place that acknowledges. While a message is in work, the server
// is notified of that. The message is then acknowledged, given back for another
// delivery, or published as a dead letter, by the disposition of the handler; also
// when that comes after ctx is done. A handler that panics gives its message back.
//
// When ctx is done Consume stops reading, gives what was not begun back to the
// server at once, waits until all that was begun has a disposition, and returns
// nil. The context of handle is not cancelled by that; handle bounds itself.
func Consume(ctx context.Context, js jetstream.JetStream, o ConsumeOptions, handle Handler) error {
	if o.Concurrency < 1 {
		return fmt.Errorf("read consumer %s: concurrency is %d, at least 1 is needed", o.Consumer, o.Concurrency)
	}
	c := NewConsumer(js, o, handle)
	r := newReader(js, c.options, func(handleCtx context.Context, m jetstream.Msg) {
		c.handle(handleCtx, newDelivery(m, ctx.Done()))
	})
	defer r.end()
	for wait := reopenFirst; ; wait = min(2*wait, reopenMax) {
		began := time.Now()
		err := r.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.state.set(err)
		if time.Since(began) > reopenMax {
			wait = reopenFirst
		}
		if !rest(ctx, wait) {
			return nil
		}
	}
}

// reopenFirst and reopenMax bound the pauses before a consumer is opened again.
const (
	reopenFirst = 100 * time.Millisecond
	reopenMax   = 2 * time.Second
)

// Consumer handles messages as Consume does, for a caller that has read them.
type Consumer struct {
	client  *Client
	options ConsumeOptions
	next    Handler
}

// NewConsumer returns what Consume calls for each message.
func NewConsumer(js jetstream.JetStream, o ConsumeOptions, handle Handler) *Consumer {
	o.InProgressEvery = cmp.Or(o.InProgressEvery, AckWait/3)
	o.heartbeat = cmp.Or(o.heartbeat, 5*time.Second)
	o.MaxUnended = cmp.Or(o.MaxUnended, DefaultMaxUnended)
	if o.Poison == nil {
		o.Poison = func(context.Context, *Delivery) Disposition { return DeadLetter(errPoison) }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Consumer{client: NewClient(js), options: o, next: handle}
}

// Handle handles one message and returns what became of it.
func (c *Consumer) Handle(ctx context.Context, m jetstream.Msg) Disposition {
	return c.handle(ctx, newDelivery(m, ctx.Done()))
}

func (c *Consumer) handle(ctx context.Context, d *Delivery) Disposition {
	alive := keepAlive(d, c.options.InProgressEvery)
	unended, read := c.begin(ctx, d)
	disposition := c.decide(ctx, d, unended)
	if disposition.action == actionDeadLetter {
		disposition = c.publishDeadLetter(ctx, d, disposition)
	}
	c.end(ctx, d, disposition, unended, read)
	alive.end()
	c.acknowledge(d, disposition)
	if c.options.Observe != nil {
		c.options.Observe(d, disposition)
	}
	return disposition
}

// decide calls the handler, or that of poison after so many handlings without an
// end.
func (c *Consumer) decide(ctx context.Context, d *Delivery, unended uint64) Disposition {
	if unended >= c.options.MaxUnended {
		return call(ctx, d, c.options.Poison)
	}
	return call(ctx, d, c.next)
}

// call runs a handler. One that panics must not end the process, and with it
// the handling of all other messages.
func call(ctx context.Context, d *Delivery, handle Handler) (disposition Disposition) {
	defer func() {
		if value := recover(); value != nil {
			disposition = Disposition{action: actionRetry, err: &panicked{value: value, stack: debug.Stack()}}
		}
	}()
	return handle(ctx, d)
}

// publishDeadLetter publishes the dead letter of a message, and returns what becomes of the
// message then.
func (c *Consumer) publishDeadLetter(ctx context.Context, d *Delivery, as Disposition) Disposition {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	key, deadLetter := d.deadLetter(as.err, c.options.Now())
	err := c.client.PublishDeadLetter(ctx, key, deadLetter, d.id())
	if errors.Is(err, ErrTooLarge) { // the reason matters more than the payload
		deadLetter.Payload, deadLetter.Want = nil, nil
		err = c.client.PublishDeadLetter(ctx, key, deadLetter, d.id())
	}
	if err != nil {
		return Disposition{action: actionRetry, after: d.Backoff(deadLetterBackoffMax), err: err}
	}
	return as
}

// deadLetterBackoffMax bounds the delay before a message is handled again whose
// dead letter could not be published.
const deadLetterBackoffMax = 8 * time.Second

// acknowledge asks the server for what becomes of a message. If the request is
// lost, the server delivers the message again once AckWait has passed, and the
// handling of both is idempotent; so an error here has no consequence.
func (c *Consumer) acknowledge(d *Delivery, with Disposition) {
	switch with.action {
	case actionAck, actionDeadLetter:
		_ = d.message.Ack()
	case actionGiveBack:
		_ = d.message.Nak()
	default:
		after := with.after
		if after <= 0 {
			after = d.Backoff(backoffMax)
		}
		_ = d.message.NakWithDelay(after)
	}
}

// heartbeat keeps a message from being delivered to others while it is in work.
type heartbeat struct {
	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// keepAlive begins with a beat if the message is old: it may have waited in the
// client's buffer for long.
func keepAlive(d *Delivery, every time.Duration) *heartbeat {
	if time.Since(d.StoredAt()) > every {
		_ = d.message.InProgress()
	}
	h := new(heartbeat)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(every, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ended {
			_ = d.message.InProgress()
			h.timer.Reset(every)
		}
	})
	return h
}

// end stops the heartbeat. No beat comes after it, which would take back the
// delay that a message is given back with.
func (h *heartbeat) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.timer.Stop()
}
