package watcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// epoch returns the epoch of the stream of requests, created if need be.
func (p *publisher) epoch(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if p.config.ManageStreams != manageOff {
		streams := p.config.Streams
		streams.KeepExisting = p.config.ManageStreams == manageCreate
		return pipeline.Ensure(ctx, p.rt.JetStream, streams)
	}
	epoch, _, err := pipeline.Epoch(ctx, p.rt.JetStream)
	return epoch, err
}

// check ends the session when the stream is not, or may not be, the one that
// was read.
func (p *publisher) check(ctx context.Context, s *session) error {
	broken := p.rt.NATS.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED)
	defer p.rt.NATS.RemoveStatusListener(broken)
	ticker := p.clock.NewTicker(p.pace.check)
	defer ticker.Stop()
	for p.rt.NATS.IsConnected() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return errDisconnected
		case <-ticker.C():
		}
		if err := p.unchanged(ctx, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return errDisconnected
}

// unchanged compares the stream with what was read. A broker that does not
// answer is not a change.
func (p *publisher) unchanged(ctx context.Context, s *session) error {
	epoch, err := p.epoch(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, pipeline.ErrIncompatible):
		return err
	case err != nil:
		return nil // publishing fails too, and is tried again
	case epoch != s.epoch:
		return fmt.Errorf("%w: it was created anew", errReload)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key, seq, found := p.index.Oldest()
	_, first, err := pipeline.Epoch(ctx, p.rt.JetStream)
	if err != nil || !found || seq >= first {
		return nil
	}
	// The oldest want is gone, or was replaced a moment ago.
	if _, _, err := p.client.LastWant(ctx, key); errors.Is(err, pipeline.ErrNoMessage) {
		return fmt.Errorf("%w: it was purged", errReload)
	}
	return nil
}
