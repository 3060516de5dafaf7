package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// ConsumeOptions configure how Consume reads messages from a durable consumer and handles them.
type ConsumeOptions struct {
	// Stream and Consumer to read from. They may be created later.
	Stream, Consumer string
	// Concurrency is the maximum number of messages handled at a time, at least 1. Up to 16 more, with up to 16
	// MiB, wait in the client's buffer, where AckWait runs too.
	Concurrency int
	// MaxBytes limits the total payload of messages handled at a time; 0 means no limit. A larger
	// message is handled alone.
	MaxBytes int64
	// State, if set, is called at each change between reading (nil) and not reading (the reason).
	// Calls do not overlap.
	State func(err error)
	// InProgressEvery is the interval of progress reports to the server while a message is handled;
	// 0 means a third of AckWait.
	InProgressEvery time.Duration
	// Observe, if set, is called with the disposition of each message, after the server was
	// informed. Calls may overlap.
	Observe func(*Delivery, Disposition)
}

// Consume reads messages and calls handle for each in its own goroutine, until ctx is done. It
// waits until the consumer exists, and reopens it after the consumer, the stream or the whole
// server was replaced.
//
// Only Consume acknowledges. While a message is handled, it reports progress to the server. Then it
// acknowledges the message, asks for another delivery or publishes a dead letter, depending on the
// handler's disposition, even after ctx is done. The message of a handler that panics is retried.
//
// When ctx is done, Consume stops reading, returns messages that it has not begun at once, waits
// for the disposition of the others, and returns. The context of handle is not cancelled by that, so handle must limit
// itself.
func Consume(ctx context.Context, js jetstream.JetStream, o ConsumeOptions, handle Handler) {
	c := NewConsumer(js, o, handle)
	defer c.wait()
	for wait := reopenFirst; ; wait = min(2*wait, reopenMax) {
		began := time.Now()
		err := c.consume(ctx)
		if ctx.Err() != nil {
			return
		}
		c.reportState(err)
		if time.Since(began) > reopenMax {
			wait = reopenFirst
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// reopenFirst and reopenMax are the shortest and longest pauses before a consumer is reopened.
const (
	reopenFirst = 100 * time.Millisecond
	reopenMax   = 2 * time.Second
)

// Consumer handles messages like Consume, for a caller that reads them itself.
type Consumer struct {
	js      jetstream.JetStream
	client  *Client
	options ConsumeOptions
	handler Handler

	// state is the last reported state: the text of its error.
	state *string
	// bytes limits the payload of messages in progress.
	bytes *semaphore.Weighted
	// work passes work to an idle worker, and workers holds one value per worker.
	work    chan func()
	workers chan struct{}
	ended   chan struct{}
	running sync.WaitGroup
}

// NewConsumer returns the Consumer for these options.
func NewConsumer(js jetstream.JetStream, o ConsumeOptions, handle Handler) *Consumer {
	o.InProgressEvery = cmp.Or(o.InProgressEvery, AckWait/3)
	o.MaxBytes = cmp.Or(o.MaxBytes, math.MaxInt64)
	return &Consumer{
		js: js, client: NewClient(js), options: o, handler: handle, bytes: semaphore.NewWeighted(o.MaxBytes),
		work: make(chan func()), workers: make(chan struct{}, o.Concurrency), ended: make(chan struct{}),
	}
}

// reportState reports a state if it differs from the previous one.
func (c *Consumer) reportState(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if c.options.State == nil || c.state != nil && *c.state == text {
		return
	}
	c.state = &text
	c.options.State(err)
}

// Handle handles one message and returns its disposition.
func (c *Consumer) Handle(ctx context.Context, m jetstream.Msg) Disposition {
	return c.handle(ctx, newDelivery(m, ctx.Done()))
}

func (c *Consumer) handle(ctx context.Context, d *Delivery) Disposition {
	alive := keepAlive(d, c.options.InProgressEvery)
	disposition := call(ctx, d, c.handler)
	if disposition.action == actionDeadLetter {
		disposition = c.publishDeadLetter(ctx, d, disposition)
	}
	alive.end()
	c.acknowledge(d, disposition)
	if c.options.Observe != nil {
		c.options.Observe(d, disposition)
	}
	return disposition
}

// call runs a handler and recovers from a panic, which would end the process and the handling of
// all other messages.
func call(ctx context.Context, d *Delivery, handle Handler) (disposition Disposition) {
	defer func() {
		if value := recover(); value != nil {
			err := fmt.Errorf("handler panicked: %v", value)
			disposition = Disposition{action: actionRetry, err: err, stack: debug.Stack()}
		}
	}()
	return handle(ctx, d)
}

// acknowledge sends the disposition to the server. If it gets lost, the server delivers the message
// again after AckWait. An error can be ignored, because handling is idempotent.
func (c *Consumer) acknowledge(d *Delivery, disposition Disposition) {
	switch disposition.action {
	case actionAck, actionDeadLetter:
		_ = d.message.Ack()
	case actionGiveBack:
		_ = d.message.Nak()
	default:
		after := disposition.after
		if after <= 0 {
			after = d.Backoff(backoffMax)
		}
		_ = d.message.NakWithDelay(after)
	}
}

// heartbeat prevents a redelivery of a message while it is handled.
type heartbeat struct {
	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// keepAlive sends the first heartbeat at once if the message is old, because it may have waited in
// the client's buffer for long.
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

// end stops the heartbeat. A later heartbeat would cancel the delay of a retry.
func (h *heartbeat) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.timer.Stop()
}

// bufferMessages is the maximum number of messages in the client's buffer. It is small because
// AckWait runs there, and other replicas cannot handle them. 16 are enough for 97,000 messages a
// second.
const bufferMessages = 16

// bufferBytes is the maximum size of the client's buffer. Above 64 MiB nats.go drops messages,
// which are redelivered only after AckWait.
const bufferBytes = 16 << 20

const (
	// idleHeartbeat is the interval of the server's idle heartbeats, and expiry is when the server ends
	// a request for messages. nats.go sends a new request after two missed heartbeats, so a lost request
	// delays messages by a second. nats.go 1.55 loses a request if all its messages are handled before
	// the goroutine that sent it continues (nats.go issue 1622).
	idleHeartbeat = 500 * time.Millisecond
	expiry        = 3 * time.Second
)

// consume opens the consumer and reads until that fails or ctx is done.
//
// It uses callbacks. The iterator of nats.go has a buffer for as many messages as requested. While
// all slots are busy, heartbeats take places in it, and then messages are dropped.
func (c *Consumer) consume(ctx context.Context) error {
	fail := func(what string, err error) error {
		return fmt.Errorf("%s consumer %s of stream %s: %w", what, c.options.Consumer, c.options.Stream, err)
	}
	consumer, err := c.js.Consumer(ctx, c.options.Stream, c.options.Consumer)
	if err != nil {
		return fail("open", err)
	}
	draining := ctx.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var unbegun leftover
	var missed time.Time
	consuming, err := consumer.Consume(
		func(m jetstream.Msg) {
			if !c.start(ctx, draining, m) {
				unbegun.add(m)
			}
		},
		jetstream.PullMaxMessagesWithBytesLimit(min(c.options.Concurrency, bufferMessages),
			bufferBytes+int(c.js.Conn().MaxPayload())),
		jetstream.PullExpiry(expiry),
		jetstream.PullHeartbeat(idleHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			switch {
			case errors.Is(err, jetstream.ErrConsumerLeadershipChanged): // nats.go sends a request to the new leader
			case errors.Is(err, jetstream.ErrNoHeartbeat) && time.Since(missed) > 4*idleHeartbeat:
				missed = time.Now() // nats.go sends a new request
			default:
				cancel(err)
			}
		}),
	)
	if err != nil {
		return fail("read", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(reopenFirst): // a consumer that fails at once was never readable
		c.reportState(nil)
		<-ctx.Done()
	}
	drain(consuming)
	unbegun.giveBack()
	return fail("read", context.Cause(ctx))
}

// drain stops reading and waits until the server knows, so that returned messages are not delivered
// to this client again.
func drain(consuming jetstream.ConsumeContext) {
	consuming.Drain()
	select {
	case <-consuming.Closed():
	case <-time.After(reopenMax): // no connection
	}
}

// start handles m once fewer than Concurrency messages are in progress, and reports whether it did so
// before ctx was done.
func (c *Consumer) start(ctx context.Context, draining <-chan struct{}, m jetstream.Msg) bool {
	weight := min(int64(len(m.Data())), c.options.MaxBytes)
	if ctx.Err() != nil || c.bytes.Acquire(ctx, weight) != nil {
		return false
	}
	work := func() {
		defer c.bytes.Release(weight)
		c.handle(context.WithoutCancel(ctx), newDelivery(m, draining))
	}
	select {
	case c.work <- work: // to an idle worker
		return true
	default:
	}
	select {
	case c.work <- work:
	case c.workers <- struct{}{}:
		c.running.Go(func() { c.serve(work) })
	case <-ctx.Done():
		c.bytes.Release(weight)
		return false
	}
	return true
}

// serve runs work until wait. With a new goroutine per message, growing stacks took a tenth of the
// fetcher's time.
func (c *Consumer) serve(first func()) {
	first()
	for {
		select {
		case work := <-c.work:
			work()
		case <-c.ended:
			return
		}
	}
}

// wait waits until all work is done.
func (c *Consumer) wait() {
	close(c.ended)
	c.running.Wait()
}

// leftover collects received messages that were not begun.
type leftover struct {
	mu       sync.Mutex
	messages []jetstream.Msg
	returned bool
}

func (l *leftover) add(m jetstream.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.returned {
		_ = m.Nak()
		return
	}
	l.messages = append(l.messages, m)
}

// giveBack returns the messages to the server, so that they are redelivered before AckWait.
func (l *leftover) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned = true
	for _, m := range l.messages {
		_ = m.Nak()
	}
}
