package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// lookInterval is how often it is looked whether wants are gone.
const lookInterval = 2 * time.Second

// check ends the session when the stream is not, or may not be, the one that
// was read.
func (r *Runner) check(ctx context.Context, s *session) error {
	broken := r.deps.Conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED)
	defer r.deps.Conn.RemoveStatusListener(broken)
	ticker := r.deps.Clock.NewTicker(r.config.CheckInterval)
	defer ticker.Stop()
	soon := r.deps.Clock.NewTicker(lookInterval)
	defer soon.Stop()
	for r.deps.Conn.IsConnected() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return errDisconnected
		case <-soon.C():
			if err := r.complete(ctx, s); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ticker.C():
			if err := r.unchanged(ctx, s); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return errDisconnected
}

// unchanged compares the stream with what was read. A broker that does not
// answer is not a change.
func (r *Runner) unchanged(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	epoch, err := r.deps.Epoch(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, pipeline.ErrIncompatible):
		return err
	case err != nil:
		return nil // publishing fails too, and is tried again
	case epoch != s.epoch:
		return fmt.Errorf("%w: it was created anew", errReload)
	}
	return r.complete(ctx, s)
}

// complete looks whether the oldest want is still there, by one request. Whoever may
// publish timers can clear the stream by a header (Nats-Rollup), which the broker
// does not refuse, so that this is looked at more often than the rest. While the
// stream begins where it did, nothing is gone that is older, and the index need not
// be walked.
func (r *Runner) complete(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, first, err := pipeline.Epoch(ctx, r.deps.Client.JetStream())
	if err != nil || first == s.first {
		return nil
	}
	key, seq, found := r.deps.Index.Oldest()
	if !found || seq >= first {
		s.first = first
		return nil
	}
	// The oldest want is gone, or was replaced a moment ago.
	if _, _, err := r.deps.Client.LastWant(ctx, key); errors.Is(err, pipeline.ErrNoMessage) {
		r.deps.Purged.Inc()
		return fmt.Errorf("%w: it was purged", errReload)
	}
	return nil
}
