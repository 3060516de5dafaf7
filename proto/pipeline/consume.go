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

// ConsumeOptions say how Consume takes messages from a durable consumer.
type ConsumeOptions struct {
	// Stream and Consumer to read from. They need not exist yet.
	Stream, Consumer string
	// Concurrency is the number of messages handled at a time, and also how
	// many more wait in the client's buffer: AckWait runs there too.
	Concurrency int
	// MaxBytes bounds the payload bytes handled at a time; 0: no bound. A
	// single message above it is handled alone.
	MaxBytes int64
	// State, if set, is told of each change between reading (nil) and not
	// reading (why).
	State func(err error)
}

const (
	pullExpiry    = 15 * time.Second
	pullHeartbeat = 5 * time.Second
	reopenFirst   = 100 * time.Millisecond
	reopenMax     = 2 * time.Second
)

// Consume reads messages and calls handle for each in a goroutine of its own
// until ctx is done. It waits for the consumer to exist and comes back to it
// when it was deleted, or the stream or the whole server was.
//
// When ctx is done it stops reading, gives what was not begun back to the
// server at once, waits for the calls of handle that run, and returns nil.
// The context of handle is not cancelled by that; handle bounds itself.
func Consume(ctx context.Context, js jetstream.JetStream, o ConsumeOptions, handle func(context.Context, jetstream.Msg)) error {
	if o.Concurrency < 1 {
		return fmt.Errorf("read consumer %s: concurrency is %d, at least 1 is needed", o.Consumer, o.Concurrency)
	}
	if o.State == nil {
		o.State = func(error) {}
	}
	c := &reader{options: o, js: js, handle: handle, slots: make(chan struct{}, o.Concurrency)}
	if o.MaxBytes > 0 {
		c.bytes = semaphore.NewWeighted(o.MaxBytes)
	}
	wait := reopenFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := c.read(ctx)
		if ctx.Err() != nil {
			break
		}
		o.State(err)
		if time.Since(began) > reopenMax {
			wait = reopenFirst
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, reopenMax)
	}
	c.running.Wait()
	return nil
}

type reader struct {
	options ConsumeOptions
	js      jetstream.JetStream
	handle  func(context.Context, jetstream.Msg)
	slots   chan struct{}
	bytes   *semaphore.Weighted
	running sync.WaitGroup
}

// read opens the consumer and reads until that fails or ctx is done.
func (r *reader) read(ctx context.Context) error {
	consumer, err := r.js.Consumer(ctx, r.options.Stream, r.options.Consumer)
	if err != nil {
		return fmt.Errorf("open consumer %s of stream %s: %w", r.options.Consumer, r.options.Stream, err)
	}
	messages, err := consumer.Messages(
		jetstream.PullMaxMessages(r.options.Concurrency),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true),
	)
	if err != nil {
		return fmt.Errorf("read consumer %s of stream %s: %w", r.options.Consumer, r.options.Stream, err)
	}
	r.options.State(nil)
	defer giveBack(messages)
	for {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			<-r.slots
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read consumer %s of stream %s: %w", r.options.Consumer, r.options.Stream, err)
		}
		if !r.start(ctx, m) {
			return nil
		}
	}
}

// start handles m in a goroutine, which frees the slot that was taken for it.
func (r *reader) start(ctx context.Context, m jetstream.Msg) bool {
	weight := int64(0)
	if r.bytes != nil {
		weight = min(int64(len(m.Data())), r.options.MaxBytes)
		if err := r.bytes.Acquire(ctx, weight); err != nil {
			<-r.slots
			_ = m.Nak() // not begun: another replica may
			return false
		}
	}
	handleCtx := context.WithoutCancel(ctx)
	r.running.Go(func() {
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

// giveBack stops reading and returns what waits in the client's buffer, so
// that it need not wait out AckWait.
func giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	deadline, cancel := context.WithTimeout(context.Background(), reopenMax)
	defer cancel()
	for {
		m, err := messages.Next(jetstream.NextContext(deadline))
		if err != nil {
			if !errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				messages.Stop()
			}
			return
		}
		_ = m.Nak()
	}
}
