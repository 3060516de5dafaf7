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

// errDisconnected reports that there is no broker to ask.
var errDisconnected = errors.New("no connection to NATS")

// snapshot is what was seen in one round.
type snapshot struct {
	// up reports that all requests got a response; else the rest is empty.
	up        bool
	streams   map[string]*jetstream.StreamInfo
	consumers map[string]consumer
	timers    float64
	disk      *process.DiskSync
}

// consumer is a durable consumer, which may be missing.
type consumer struct {
	*jetstream.ConsumerInfo

	// oldest is the age of the oldest message that is not acknowledged, by the
	// clock of the broker; 0: there is none.
	oldest time.Duration
}

// readers are the consumers by the stream that they read.
func readers() map[string]string {
	return map[string]string{pipeline.Requests: pipeline.FetcherConsumer, pipeline.Results: pipeline.WriterConsumer}
}

// look asks the broker about everything. The snapshot is never nil.
func (e *Exporter) look(ctx context.Context) (*snapshot, error) {
	if !e.deps.Client.JetStream().Conn().IsConnected() {
		return &snapshot{}, errDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s := &snapshot{up: true, streams: map[string]*jetstream.StreamInfo{}, consumers: map[string]consumer{}}
	for _, name := range streams() {
		look := e.stream
		if name == pipeline.Audit {
			look = e.audit
		}
		if err := look(ctx, s, name); err != nil {
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

// stream reads the state of a stream. One that is missing is no error.
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

const (
	// auditTimeout bounds the wait for the state of the stream of the audit.
	auditTimeout = time.Second
	// blindFor is how long it is not asked for once there was no response.
	blindFor = 10 * time.Minute
)

// audit reads the state of the stream of the audit. With the accounts of an earlier
// version the watcher may not, and gets no response, so it is left out for a while then.
func (e *Exporter) audit(ctx context.Context, s *snapshot, name string) error {
	if e.deps.Clock.Now().Before(e.blindUntil) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	err := e.stream(limited, s, name)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		if e.blindUntil.IsZero() {
			e.deps.Log.Warn().Err(err).Msg("the size of the audit is unknown; the watcher may need a newer accounts.conf to look at it")
		}
		e.blindUntil = e.deps.Clock.Now().Add(blindFor)
		return nil
	}
	if err == nil {
		e.blindUntil = time.Time{}
	}
	return err
}

// consumer reads the state of a consumer. One that is missing is no error.
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

// oldest returns the age of the oldest message of a consumer.
func (e *Exporter) oldest(ctx context.Context, c *jetstream.ConsumerInfo, of *jetstream.StreamInfo) (time.Duration, error) {
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
