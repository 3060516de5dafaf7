package watcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// requestTimeout bounds a round of requests to the broker.
	requestTimeout = 10 * time.Second
	// sessionPause is the longest pause between tries to begin a session.
	sessionPause = 5 * time.Second
)

// publish keeps the stream of requests in line with the objects until ctx is
// done. Each session begins with reading the stream; it ends when the
// connection breaks, or when the stream turns out not to be the one that was
// read.
func (p *publisher) publish(ctx context.Context) error {
	defer p.lead(ctx)()
	pause := retryFirst
	for said := ""; p.connected(ctx); {
		began, err := p.session(ctx)
		if began {
			said, pause = "", retryFirst
		}
		switch {
		case ctx.Err() != nil: // whatever it is, it is over
		case errors.Is(err, pipeline.ErrIncompatible):
			return err
		case errors.Is(err, errDisconnected): // that was said already
		case err.Error() != said:
			said = err.Error()
			p.rt.Log.Warn().Err(err).Msg("reading the stream of requests anew")
		}
		select {
		case <-ctx.Done():
		case <-p.clock.After(pause):
		}
		pause = min(2*pause, sessionPause)
	}
	return nil
}

// lead begins what only the watcher does that publishes, and returns what ends
// it: one of all watchers shows the state of the pipeline.
func (p *publisher) lead(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var aside sync.WaitGroup
	aside.Go(func() { p.exporter.Run(ctx) })
	p.metrics.leader.Set(1)
	return func() {
		cancel()
		aside.Wait()
		p.metrics.leader.Set(0)
	}
}

// session is one session, and tells whether it came to publish anything. Its
// error is never nil before ctx is done.
func (p *publisher) session(ctx context.Context) (began bool, err error) {
	defer p.streams.NotReady("the streams cannot be used")
	s, err := p.begin(ctx)
	if err != nil {
		return false, err
	}
	p.streams.Ready()
	return true, p.run(ctx, s)
}

// connected waits for a connection to the broker; false: ctx is done.
func (p *publisher) connected(ctx context.Context) bool {
	changed := p.rt.NATS.StatusChanged(nats.CONNECTED)
	defer p.rt.NATS.RemoveStatusListener(changed)
	for !p.rt.NATS.IsConnected() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err() == nil
}
