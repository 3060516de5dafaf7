package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

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

// read opens the consumer and reads until that fails or ctx is done.
//
// It uses callbacks. The iterator of nats.go has a buffer for as many messages as requested. While
// all slots are busy, heartbeats take places in it, and then messages are dropped.
func (c *Consumer) read(ctx context.Context) error {
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
		c.report(nil)
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
