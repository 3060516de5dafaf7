package watcher

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// streams are those of the pipeline, managed as an operator has chosen.
type streams struct {
	js     jetstream.JetStream
	config Config
}

// epoch returns the epoch of the stream of requests, created if need be.
func (s streams) epoch(ctx context.Context) (int64, error) {
	if s.config.ManageStreams != manageOff {
		topology := s.config.Streams
		topology.KeepExisting = s.config.ManageStreams == manageCreate
		return pipeline.Ensure(ctx, s.js, topology)
	}
	epoch, _, err := pipeline.Epoch(ctx, s.js)
	return epoch, err
}
