package exporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

// errDisconnected means that there is no connection to the broker.
var errDisconnected = errors.New("no connection to NATS")

// snapshot is the result of one reading.
type snapshot struct {
	// up means that the broker responded to all requests; otherwise the rest is empty.
	up        bool
	streams   map[string]*jetstream.StreamInfo
	consumers map[string]consumer
	timers    float64
	disk      *process.DiskSync
}

// consumer is an existing durable consumer.
type consumer struct {
	*jetstream.ConsumerInfo

	// oldest is the age of the oldest unacknowledged message on the broker's clock; 0: none.
	oldest time.Duration
}

// readers maps each stream to its consumer.
func readers() map[string]string {
	return map[string]string{pipeline.Requests: pipeline.FetcherConsumer, pipeline.Results: pipeline.WriterConsumer}
}

// look reads everything. The snapshot is never nil.
func (e *Exporter) look(ctx context.Context) (*snapshot, error) {
	if !e.deps.Client.JetStream().Conn().IsConnected() {
		return &snapshot{}, errDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s := &snapshot{up: true, streams: map[string]*jetstream.StreamInfo{}, consumers: map[string]consumer{}}
	for _, name := range streams() {
		if err := e.stream(ctx, s, name); err != nil {
			return &snapshot{}, err
		}
	}
	for stream, name := range readers() {
		if err := e.consumer(ctx, s, stream, name); err != nil {
			return &snapshot{}, err
		}
	}
	if s.streams[pipeline.Requests] != nil {
		timers, err := e.deps.Client.CountTimers(ctx)
		if err != nil {
			return &snapshot{}, err
		}
		s.timers = float64(timers)
	}
	s.disk = e.disk(ctx)
	return s, nil
}

// stream reads the state of a stream, if it exists.
func (e *Exporter) stream(ctx context.Context, s *snapshot, name string) error {
	stream, err := e.deps.Client.JetStream().Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	s.streams[name] = stream.CachedInfo()
	return nil
}

// consumer reads the state of a consumer, if it exists.
func (e *Exporter) consumer(ctx context.Context, s *snapshot, stream, name string) error {
	found, err := e.deps.Client.JetStream().Consumer(ctx, stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up consumer %s of stream %s: %w", name, stream, err)
	}
	c := consumer{ConsumerInfo: found.CachedInfo()}
	if c.oldest, err = e.oldest(ctx, c.ConsumerInfo, s.streams[stream]); err != nil {
		return err
	}
	s.consumers[name] = c
	return nil
}

// oldest returns the age of a consumer's oldest unacknowledged message.
func (e *Exporter) oldest(ctx context.Context, c *jetstream.ConsumerInfo, of *jetstream.StreamInfo) (time.Duration,
	error,
) {
	switch {
	case of == nil || c.NumPending == 0 && c.NumAckPending == 0:
		return 0, nil
	case c.Stream == pipeline.Results: // what is acknowledged is removed
		if of.State.Msgs == 0 {
			return 0, nil
		}
		return max(0, of.TimeStamp.Sub(of.State.FirstTime)), nil
	}
	at, err := e.deps.Client.Waiting(ctx, c.AckFloor.Stream+1)
	if errors.Is(err, pipeline.ErrNoMessage) { // it was acknowledged meanwhile
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return max(0, c.TimeStamp.Sub(at)), nil
}
