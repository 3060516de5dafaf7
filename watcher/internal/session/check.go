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

var (
	// errReload means that the stream of requests was replaced or purged.
	errReload = errors.New("the stream of requests was changed by another client")
	// errDisconnected means that the connection broke. Afterwards the stream may be older than
	// acknowledged messages.
	errDisconnected = errors.New("the connection to NATS is gone")
)

// lookInterval is the interval between checks for purged wants.
const lookInterval = 2 * time.Second

// check ends the session when the stream may have changed.
func (r *Runner) check(ctx context.Context, s *session) error {
	conn := r.deps.Client.JetStream().Conn()
	broken := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED)
	defer conn.RemoveStatusListener(broken)
	ticker := r.deps.Clock.NewTicker(r.config.CheckInterval)
	defer ticker.Stop()
	soon := r.deps.Clock.NewTicker(lookInterval)
	defer soon.Stop()
	for conn.IsConnected() {
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

// unchanged compares the stream with the session. A broker without a response is not a change.
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

// complete checks that the oldest want still exists, by one request. It runs more often than the
// rest, because whoever may publish timers can purge the stream by a header (Nats-Rollup). If the
// first sequence is unchanged, the index need not be scanned.
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
	// The oldest want is gone, or was just replaced.
	if _, _, err := r.deps.Client.LastWant(ctx, key); errors.Is(err, pipeline.ErrNoMessage) {
		r.deps.Metrics.purges.Inc()
		return fmt.Errorf("%w: it was purged", errReload)
	}
	return nil
}
