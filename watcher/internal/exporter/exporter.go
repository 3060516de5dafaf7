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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
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
	Log    zerolog.Logger
}

// Exporter reads the state of the pipeline while it runs.
type Exporter struct {
	every time.Duration
	deps  Deps
	last  atomic.Pointer[reading]
}

// New returns an Exporter with the time between two readings.
func New(every time.Duration, d Deps) *Exporter { return &Exporter{every: every, deps: d} }

// Run reads the state until ctx is done. Afterwards the metrics have no series, because another watcher
// exports them.
func (e *Exporter) Run(ctx context.Context) {
	defer e.last.Store(nil)
	failing := false
	read := func(ctx context.Context) {
		r, err := e.measure(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			e.deps.Log.Warn().Err(err).Msg("cannot read the state of the pipeline, its metrics are absent")
		case err == nil && failing:
			e.deps.Log.Info().Msg("the state of the pipeline can be read again")
		}
		if failing = err != nil; failing {
			r = reading{}
		}
		r.set("up", "", metric.Bool(!failing))
		e.last.Store(&r)
	}
	wait.UntilWithContext(ctx, read, e.every)
}

// errDisconnected means that there is no connection to the broker.
var errDisconnected = errors.New("no connection to NATS")

// reading has the values of one reading, by metric and label (empty: none).
type reading map[string]map[string]float64

func (r reading) set(metric, label string, value float64) {
	if r[metric] == nil {
		r[metric] = map[string]float64{}
	}
	r[metric][label] = value
}

func (e *Exporter) measure(ctx context.Context) (reading, error) {
	if !e.deps.Client.JetStream().Conn().IsConnected() {
		return nil, errDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := reading{}
	r.set("timers_messages", "", 0)
	for _, reader := range readers() {
		r.set("consumer_present", reader, 0)
	}
	for _, name := range streams() {
		if err := e.stream(ctx, r, name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// stream reads the state of a stream and its consumer, if they exist.
func (e *Exporter) stream(ctx context.Context, r reading, name string) error {
	stream, err := e.deps.Client.JetStream().Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	info, reader := stream.CachedInfo(), pipeline.WriterConsumer
	r.set("stream_messages", name, float64(info.State.Msgs))
	r.set("stream_bytes", name, float64(info.State.Bytes))
	r.set("stream_replicas", name, float64(info.Config.Replicas))
	r.set("stream_current_replicas", name, currentReplicas(info))
	if name != pipeline.Requests {
		r.set("stream_limit_bytes", name, float64(info.Config.MaxBytes))
	}
	switch name {
	case pipeline.DeadLetters:
		return nil
	case pipeline.Requests:
		reader = pipeline.FetcherConsumer
		timers, err := e.deps.Client.CountTimers(ctx)
		if err != nil {
			return err
		}
		r.set("timers_messages", "", float64(timers))
	}
	found, err := stream.Consumer(ctx, reader)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up consumer %s of stream %s: %w", reader, name, err)
	}
	c := found.CachedInfo()
	oldest, err := e.oldest(ctx, c, info)
	r.set("consumer_present", reader, 1)
	r.set("consumer_paused", reader, metric.Bool(c.Paused))
	r.set("backlog_messages", reader, float64(c.NumPending))
	r.set("in_flight_messages", reader, float64(c.NumAckPending))
	r.set("in_flight_limit_messages", reader, float64(c.Config.MaxAckPending))
	r.set("redelivered_messages", reader, float64(c.NumRedelivered))
	r.set("waiting_pulls", reader, float64(c.NumWaiting))
	r.set("oldest_message_age_seconds", reader, oldest.Seconds())
	return err
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
	at, err := e.deps.Client.OldestWant(ctx, c.AckFloor.Stream+1)
	if errors.Is(err, pipeline.ErrNoMessage) { // acknowledged in the meantime
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return max(0, c.TimeStamp.Sub(at)), nil
}

func streams() []string { return []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters} }

func readers() []string { return []string{pipeline.FetcherConsumer, pipeline.WriterConsumer} }

// Measure creates the metrics. They have series only while the exporter runs. While the broker does not
// respond, only up has one.
func (e *Exporter) Measure(set *metric.Set) {
	var families []metric.Definition
	add := func(name, help string, labels ...metric.Label) {
		families = append(families, metric.Definition{Name: name, Help: help, Labels: labels})
	}
	add("up", "Whether the broker responded when it was last asked about the pipeline: 0 or 1.")
	add("timers_messages", "Pending timers of retries, refreshes, rechecks and parked attempts.")
	consumer, stream := metric.Labeled("consumer", readers()...), metric.Labeled("stream", streams()...)
	add("consumer_present", "Whether the consumer exists: 0 or 1.", consumer)
	add("consumer_paused", "Whether curlctl has paused the consumer: 0 or 1.", consumer)
	add("backlog_messages", "Messages that were not delivered yet.", consumer)
	add("in_flight_messages", "Messages that were delivered and are not acknowledged yet.", consumer)
	add("in_flight_limit_messages", "Maximum number of messages in flight, over all replicas.", consumer)
	add("redelivered_messages", "Messages in flight that were delivered more than once.", consumer)
	add("waiting_pulls", "Pending pull requests. None for long means no reader.", consumer)
	add("oldest_message_age_seconds", "Age of the oldest unacknowledged message, 0 without one.", consumer)
	add("stream_messages", "Messages in the stream.", stream)
	add("stream_bytes", "Size of the stream.", stream)
	add("stream_replicas", "Configured replicas of the stream.", stream)
	add("stream_current_replicas", "Replicas that are up to date, the leader included.", stream)
	add("stream_limit_bytes", "Maximum size of the stream. The stream of requests has no limit.",
		metric.Labeled("stream", pipeline.Results, pipeline.DeadLetters))
	set.Families(func() []map[string]float64 {
		values := make([]map[string]float64, len(families))
		if last := e.last.Load(); last != nil {
			for i, f := range families {
				values[i] = (*last)[f.Name]
			}
		}
		return values
	}, families...)
}

// currentReplicas returns the number of up-to-date replicas of a stream.
func currentReplicas(i *jetstream.StreamInfo) float64 {
	if i.Cluster == nil || i.Config.Replicas <= 1 {
		return 1
	}
	n := 0
	if i.Cluster.Leader != "" {
		n++
	}
	for _, r := range i.Cluster.Replicas {
		if r.Current && !r.Offline {
			n++
		}
	}
	return float64(n)
}
