package watcher

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/brokerclock"
)

// streams are those of the pipeline, managed as an operator has chosen.
type streams struct {
	js     jetstream.JetStream
	config Config
	clock  *brokerclock.Clock
	log    zerolog.Logger

	// noAudit is whether the last look found no stream for the audit.
	noAudit atomic.Bool
}

// epoch returns the epoch of the stream of requests, created if need be, and
// sets the clock.
func (s *streams) epoch(ctx context.Context) (int64, error) {
	epoch, err := s.ensure(ctx)
	if err != nil {
		return 0, err
	}
	stream, err := s.js.Stream(ctx, pipeline.Requests)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", pipeline.Requests, err)
	}
	if now := stream.CachedInfo().TimeStamp; !now.IsZero() { // an old server has none
		s.clock.Set(now)
	}
	return epoch, nil
}

func (s *streams) ensure(ctx context.Context) (epoch int64, err error) {
	if s.config.ManageStreams != manageOff {
		topology := s.config.Streams
		topology.KeepExisting = s.config.ManageStreams == manageCreate
		epoch, err = pipeline.Ensure(ctx, s.js, topology)
		return epoch, s.withoutAudit(err)
	}
	epoch, _, err = pipeline.Epoch(ctx, s.js)
	return epoch, err
}

// withoutAudit returns err, unless it is only that there is no stream for the
// audit, such as for want of space: what operators may do must not hold up what
// users want. That is logged once, until there is one.
func (s *streams) withoutAudit(err error) error {
	missing := errors.Is(err, pipeline.ErrNoAudit)
	if s.noAudit.Swap(missing) != missing && missing {
		s.log.Warn().Err(err).Msg("operators cannot act by curlctl until there is a stream for the audit")
	}
	if missing {
		return nil
	}
	return err
}
