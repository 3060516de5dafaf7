// Package exporter exposes the state of streams and consumers as metrics. Only the leader exports them.
// It reads the state once per interval, independently of scrapes.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/pace"
)

const (
	// Interval is the usual time between two readings.
	Interval = 15 * time.Second
	// readTimeout is the timeout of one reading.
	readTimeout = 5 * time.Second
)

// Deps are the dependencies of an Exporter.
type Deps struct {
	Client *pipeline.Client
	Clock  clock.WithTicker
	Log    zerolog.Logger
}

// Exporter reads the state of the pipeline while it runs.
type Exporter struct {
	every time.Duration
	deps  Deps
	last  atomic.Pointer[snapshot]
}

// New returns an Exporter with the time between two readings.
func New(every time.Duration, d Deps) *Exporter { return &Exporter{every: every, deps: d} }

// Run reads the state until ctx is done. Afterwards the metrics have no series, because another watcher
// exports them.
func (e *Exporter) Run(ctx context.Context) {
	defer e.last.Store(nil)
	failing := false
	read := func() {
		s, err := e.read(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			e.deps.Log.Warn().Err(err).Msg("cannot read the state of the pipeline, its metrics are absent")
		case err == nil && failing:
			e.deps.Log.Info().Msg("the state of the pipeline can be read again")
		}
		failing = err != nil
		e.last.Store(s)
	}
	read()
	pace.Every(ctx, e.deps.Clock, e.every, read)
}

// errDisconnected means that there is no connection to the broker.
var errDisconnected = errors.New("no connection to NATS")

// snapshot is the result of one reading.
type snapshot struct {
	// up means that the broker responded to all requests. Otherwise the other fields are empty.
	up        bool
	streams   map[string]*jetstream.StreamInfo
	consumers map[string]consumer
	timers    float64
}

// consumer is the state of a durable consumer.
type consumer struct {
	*jetstream.ConsumerInfo

	// oldest is the age of the oldest unacknowledged message on the broker's clock (0: none).
	oldest time.Duration
}

// read returns a snapshot, which is never nil.
func (e *Exporter) read(ctx context.Context) (*snapshot, error) {
	if !e.deps.Client.JetStream().Conn().IsConnected() {
		return &snapshot{}, errDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s := &snapshot{up: true, streams: map[string]*jetstream.StreamInfo{}, consumers: map[string]consumer{}}
	for _, name := range streams() {
		if err := e.stream(ctx, s, name); err != nil {
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
	return s, nil
}

// stream reads the state of a stream and its consumer, if they exist.
func (e *Exporter) stream(ctx context.Context, s *snapshot, name string) error {
	stream, err := e.deps.Client.JetStream().Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	s.streams[name] = stream.CachedInfo()
	reader, read := map[string]string{
		pipeline.Requests: pipeline.FetcherConsumer, pipeline.Results: pipeline.WriterConsumer,
	}[name]
	if !read {
		return nil
	}
	found, err := stream.Consumer(ctx, reader)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up consumer %s of stream %s: %w", reader, name, err)
	}
	c := consumer{ConsumerInfo: found.CachedInfo()}
	if c.oldest, err = e.oldest(ctx, c.ConsumerInfo, s.streams[name]); err != nil {
		return err
	}
	s.consumers[reader] = c
	return nil
}

// oldest returns the age of a consumer's oldest unacknowledged message.
func (e *Exporter) oldest(ctx context.Context, c *jetstream.ConsumerInfo, of *jetstream.StreamInfo) (time.Duration,
	error,
) {
	switch {
	case c.NumPending == 0 && c.NumAckPending == 0:
		return 0, nil
	case c.Stream == pipeline.Results: // acknowledged messages are removed
		if of.State.Msgs == 0 {
			return 0, nil
		}
		first := of.State.FirstTime
		if c.AckFloor.Last != nil && of.State.FirstSeq <= c.AckFloor.Stream { // kept by a broker that crashed
			first = *c.AckFloor.Last
		}
		return max(0, of.TimeStamp.Sub(first)), nil
	}
	at, err := e.deps.Client.Waiting(ctx, c.AckFloor.Stream+1)
	if errors.Is(err, pipeline.ErrNoMessage) { // acknowledged in the meantime
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return max(0, c.TimeStamp.Sub(at)), nil
}
