package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
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

// reader reads messages from a durable consumer.
type reader struct {
	options ConsumeOptions
	js      jetstream.JetStream
	handle  func(context.Context, jetstream.Msg)
	state   stateReporter
	bytes   *semaphore.Weighted
	// work passes work to an idle worker, and workers holds one value per worker.
	work    chan func()
	workers chan struct{}
	ended   chan struct{}
	running sync.WaitGroup
}

func newReader(js jetstream.JetStream, o ConsumeOptions, handle func(context.Context, jetstream.Msg)) *reader {
	o.MaxBytes = cmp.Or(o.MaxBytes, math.MaxInt64)
	return &reader{
		options: o,
		js:      js,
		handle:  handle,
		state:   stateReporter{callback: o.State},
		bytes:   semaphore.NewWeighted(o.MaxBytes),
		work:    make(chan func()),
		workers: make(chan struct{}, o.Concurrency),
		ended:   make(chan struct{}),
	}
}

// read opens the consumer and reads until that fails or ctx is done.
//
// It uses callbacks. The iterator of nats.go has a buffer for as many messages as requested. While
// all slots are busy, heartbeats take places in it, and then messages are dropped.
func (r *reader) read(ctx context.Context) error {
	fail := func(what string, err error) error {
		return fmt.Errorf("%s consumer %s of stream %s: %w", what, r.options.Consumer, r.options.Stream, err)
	}
	consumer, err := r.js.Consumer(ctx, r.options.Stream, r.options.Consumer)
	if err != nil {
		return fail("open", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var unbegun leftover
	var missed time.Time
	consuming, err := consumer.Consume(
		func(m jetstream.Msg) {
			if !r.start(ctx, m) {
				unbegun.add(m)
			}
		},
		jetstream.PullMaxMessagesWithBytesLimit(min(r.options.Concurrency, bufferMessages),
			bufferBytes+int(r.js.Conn().MaxPayload())),
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
		r.state.report(nil)
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
func (r *reader) start(ctx context.Context, m jetstream.Msg) bool {
	weight := min(int64(len(m.Data())), r.options.MaxBytes)
	if ctx.Err() != nil || r.bytes.Acquire(ctx, weight) != nil {
		return false
	}
	handleCtx := context.WithoutCancel(ctx)
	work := func() {
		defer r.bytes.Release(weight)
		r.handle(handleCtx, m)
	}
	select {
	case r.work <- work: // to an idle worker
		return true
	default:
	}
	select {
	case r.work <- work:
	case r.workers <- struct{}{}:
		r.running.Go(func() { r.serve(work) })
	case <-ctx.Done():
		r.bytes.Release(weight)
		return false
	}
	return true
}

// serve runs work until end. With a new goroutine per message, growing stacks took a tenth of the
// fetcher's time.
func (r *reader) serve(first func()) {
	first()
	for {
		select {
		case work := <-r.work:
			work()
		case <-r.ended:
			return
		}
	}
}

// end waits until all work is done.
func (r *reader) end() {
	close(r.ended)
	r.running.Wait()
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
