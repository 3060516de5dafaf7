package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// LoadWants calls each with the last message of every want subject, tombstones
// included, in stream order.
func (c *Client) LoadWants(ctx context.Context, each func(Message) error) error {
	return c.load(ctx, wantPrefix+">", false, each)
}

// LoadTimers calls each with every pending timer, without its payload.
func (c *Client) LoadTimers(ctx context.Context, each func(Message) error) error {
	return c.load(ctx, timerPrefix+">", true, each)
}

// CountTimers returns how many timers are pending. It asks for a consumer that
// nobody reads from and that is gone a moment later: by creating it the reader
// uses no other right than LoadTimers does.
func (c *Client) CountTimers(ctx context.Context) (uint64, error) {
	consumer, err := c.js.CreateOrUpdateConsumer(ctx, Requests, jetstream.ConsumerConfig{
		Description:       "curl-me-that: counts timers",
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     timerPrefix + ">",
		HeadersOnly:       true,
		InactiveThreshold: time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return 0, fmt.Errorf("count timers: %w", err)
	}
	return consumer.CachedInfo().NumPending, nil
}

// load reads through an ephemeral push consumer, delivered to the inbox of the
// connection, so that the reader needs no right to pull from other consumers.
// It publishes to $JS.API.CONSUMER.CREATE.CURL_REQUESTS.*.<filter> and, beyond
// 1 MiB, to $JS.FC.CURL_REQUESTS.> for flow control.
func (c *Client) load(ctx context.Context, filter string, headersOnly bool, each func(Message) error) error {
	fail := func(err error) error { return fmt.Errorf("read %s: %w", filter, err) }
	config := jetstream.ConsumerConfig{
		DeliverSubject:    c.js.Conn().NewInbox(),
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     filter,
		HeadersOnly:       headersOnly,
		InactiveThreshold: 10 * time.Second,
		FlowControl:       true,
		IdleHeartbeat:     5 * time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	}
	consumer, err := c.reader(ctx, config)
	if err != nil {
		return fail(err)
	}
	if consumer.CachedInfo().NumPending == 0 { // nothing would ever be delivered
		return nil
	}
	config.Name = consumer.CachedInfo().Name

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &loading{each: each, headersOnly: headersOnly, stop: cancel}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { l.take(ctx, m) },
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { cancel(err) }))
	if err != nil {
		return fail(err)
	}
	l.watch(ctx, func() (*jetstream.ConsumerInfo, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		again, err := c.js.CreateOrUpdatePushConsumer(ctx, Requests, config)
		if err != nil {
			return nil, err
		}
		return again.CachedInfo(), nil
	})
	consuming.Stop()
	l.mu.Lock() // until a call of each has returned
	defer l.mu.Unlock()
	if err := context.Cause(ctx); !errors.Is(err, errLoaded) {
		return fail(err)
	}
	return nil
}

// reader creates the consumer that is read through. A cluster places it on one
// server, for a while also on one that is gone; from that no answer comes, and
// the next try most likely lands on another.
func (c *Client) reader(ctx context.Context, config jetstream.ConsumerConfig) (jetstream.PushConsumer, error) {
	for patience := answerTimeout / 2; ; patience = min(2*patience, readerTimeout) {
		limited, cancel := context.WithTimeout(ctx, patience)
		consumer, err := c.js.CreateOrUpdatePushConsumer(limited, Requests, config)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return consumer, err
		}
	}
}

// readerTimeout is the longest that is waited for one consumer to be created:
// in a large stream its server has to look for what it will deliver.
const readerTimeout = 4 * answerTimeout

// quiet is how long nothing must come before the server is asked whether
// anything will.
const quiet = time.Second

// errLoaded ends a loading that is complete.
var errLoaded = errors.New("loaded")

// loading is one run through all messages of a filter.
type loading struct {
	each        func(Message) error
	headersOnly bool
	stop        context.CancelCauseFunc

	mu       sync.Mutex
	received uint64
}

// take hands one message out, and stops after the last or on an error.
func (l *loading) take(ctx context.Context, m jetstream.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	meta, err := m.Metadata()
	if err != nil {
		l.stop(err)
		return
	}
	if meta.Sequence.Consumer != l.received+1 {
		l.stop(fmt.Errorf("message %d of the consumer is missing", l.received+1))
		return
	}
	l.received++
	e := Message{Subject: m.Subject(), Sequence: meta.Sequence.Stream, Time: meta.Timestamp, Header: m.Headers()}
	if !l.headersOnly {
		e.Data = m.Data()
	}
	if err := l.each(e); err != nil {
		l.stop(err)
	} else if meta.NumPending == 0 {
		l.stop(errLoaded)
	}
}

// watch returns when ctx is done. A message that is removed before its turn,
// such as a timer that fires, may leave the one before it as the last without
// its knowing. So when nothing comes, info tells whether all was received:
// creating the consumer once more is a right that the reader has.
func (l *loading) watch(ctx context.Context, info func() (*jetstream.ConsumerInfo, error)) {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for before := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		received := l.received
		l.mu.Unlock()
		if received != before {
			before = received
			continue
		}
		have, err := info()
		switch {
		case err != nil:
			l.stop(err)
		case have.NumPending == 0 && have.Delivered.Consumer == received:
			l.stop(errLoaded)
		}
	}
}
