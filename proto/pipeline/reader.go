package pipeline

import (
	"context"
	"errors"
	"fmt"
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

// reader reads messages from a durable consumer.
type reader struct {
	options ConsumeOptions
	js      jetstream.JetStream
	handle  func(context.Context, jetstream.Msg)
	state   changes
	slots   chan struct{}
	bytes   *semaphore.Weighted
	// idle passes work to an idle goroutine.
	idle    chan func()
	ended   chan struct{}
	running sync.WaitGroup
}

func newReader(js jetstream.JetStream, o ConsumeOptions, handle func(context.Context, jetstream.Msg)) *reader {
	r := &reader{
		options: o,
		js:      js,
		handle:  handle,
		state:   changes{report: o.State},
		slots:   make(chan struct{}, o.Concurrency),
		idle:    make(chan func()),
		ended:   make(chan struct{}),
	}
	if o.MaxBytes > 0 {
		r.bytes = semaphore.NewWeighted(o.MaxBytes)
	}
	return r
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
	consuming, err := consumer.Consume(
		func(m jetstream.Msg) {
			if !r.start(ctx, m) {
				unbegun.add(m)
			}
		},
		jetstream.PullMaxMessagesWithBytesLimit(min(r.options.Concurrency, bufferMessages),
			bufferBytes+int(r.js.Conn().MaxPayload())),
		jetstream.PullExpiry(3*r.options.heartbeat),
		jetstream.PullHeartbeat(r.options.heartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if !errors.Is(err, jetstream.ErrConsumerLeadershipChanged) { // nats.go asks the new one
				cancel(err)
			}
		}),
	)
	if err != nil {
		return fail("read", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(reopenFirst): // what fails at once is no change for the better
		r.state.set(nil)
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

// start handles m in a goroutine once there is a free slot, and reports whether it did so before
// ctx was done.
func (r *reader) start(ctx context.Context, m jetstream.Msg) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	weight := int64(0)
	if r.bytes != nil {
		weight = min(int64(len(m.Data())), r.options.MaxBytes)
		if err := r.bytes.Acquire(ctx, weight); err != nil {
			<-r.slots
			return false
		}
	}
	handleCtx := context.WithoutCancel(ctx)
	r.run(func() {
		defer func() {
			if r.bytes != nil {
				r.bytes.Release(weight)
			}
			<-r.slots
		}()
		r.handle(handleCtx, m)
	})
	return true
}

// run passes work to an idle goroutine, or to a new one. Growing the stacks of new goroutines took
// a tenth of the fetcher's time.
func (r *reader) run(work func()) {
	select {
	case r.idle <- work:
		return
	default:
		r.running.Go(r.serve)
	}
	select {
	case r.idle <- work:
	case <-r.ended: // a message came later than draining waits for
		work()
	}
}

// serve runs work until end. Between two pieces it keeps no reference.
func (r *reader) serve() {
	for {
		select {
		case work := <-r.idle:
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
	late     bool
}

func (l *leftover) add(m jetstream.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late {
		_ = m.Nak()
		return
	}
	l.messages = append(l.messages, m)
}

// giveBack returns the messages to the server, so that they are redelivered before AckWait.
func (l *leftover) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = true
	for _, m := range l.messages {
		_ = m.Nak()
	}
}
