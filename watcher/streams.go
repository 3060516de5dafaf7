package watcher

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/brokerclock"
)

// streams are those of the pipeline, managed as an operator has chosen.
type streams struct {
	js     jetstream.JetStream
	config Config
	clock  *brokerclock.Clock
}

// epoch returns the epoch of the stream of requests, created if need be, and
// sets the clock.
func (s streams) epoch(ctx context.Context) (int64, error) {
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

func (s streams) ensure(ctx context.Context) (epoch int64, err error) {
	if s.config.ManageStreams != manageOff {
		topology := s.config.Streams
		topology.KeepExisting = s.config.ManageStreams == manageCreate
		return pipeline.Ensure(ctx, s.js, topology)
	}
	epoch, _, err = pipeline.Epoch(ctx, s.js)
	return epoch, err
}
