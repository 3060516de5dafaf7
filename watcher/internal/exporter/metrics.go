package exporter

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

func streams() []string {
	return []string{pipeline.Requests, pipeline.Results, pipeline.Failures, pipeline.Audit}
}

// Measure makes the metrics in the set of the pipeline. They have no series
// while the exporter does not run and, but for one, while the broker does not
// answer.
func (e *Exporter) Measure(set *metric.Set) {
	set.OptionalGaugeFunc("up", "Whether the broker responded when it was last asked about the pipeline: 0 or 1.",
		e.one(func(s *snapshot) (float64, bool) { return number(s.up), true }))
	set.OptionalGaugeFunc("timers_messages", "Timers that are pending: of retries, refreshes, rechecks, and attempts put off.",
		e.one(func(s *snapshot) (float64, bool) { return s.timers, s.up }))
	e.measureConsumers(set)
	e.measureStreams(set)
	set.OptionalGaugeFunc("sync_always", "Whether every NATS server writes to disk before it acknowledges: 0 or 1. Known only with --nats-monitor.",
		e.one(func(s *snapshot) (float64, bool) { return number(s.disk != nil && s.disk.Always), s.disk != nil }))
	set.OptionalGaugeFunc("sync_interval_seconds", "Longest time until a NATS server writes to disk what it has acknowledged. Known only with --nats-monitor.",
		e.one(func(s *snapshot) (float64, bool) {
			if s.disk == nil {
				return 0, false
			}
			return s.disk.Interval.Seconds(), true
		}))
}

func (e *Exporter) measureConsumers(set *metric.Set) {
	names := metric.Of("consumer", pipeline.FetcherConsumer, pipeline.WriterConsumer)
	set.GaugesFunc("consumer_present", "Whether the consumer exists: 0 or 1.", names, e.each(func(s *snapshot) map[string]float64 {
		present := map[string]float64{}
		for _, name := range names.Values {
			_, found := s.consumers[name]
			present[name] = number(found && s.up)
		}
		return present
	}))
	for _, m := range []struct {
		name, help string
		value      func(consumer) float64
	}{
		{"consumer_paused", "Whether the consumer is paused, as curlctl does: 0 or 1.", func(c consumer) float64 { return number(c.Paused) }},
		{"backlog_messages", "Messages that were not delivered yet.", func(c consumer) float64 { return float64(c.NumPending) }},
		{"in_flight_messages", "Messages that were delivered and not acknowledged yet.", func(c consumer) float64 { return float64(c.NumAckPending) }},
		{"in_flight_limit_messages", "Messages that may be in flight, over all replicas.", func(c consumer) float64 { return float64(c.Config.MaxAckPending) }},
		{"redelivered_messages", "Messages in flight that were delivered more than once.", func(c consumer) float64 { return float64(c.NumRedelivered) }},
		{"waiting_pulls", "Requests for messages that wait; none for long: there is no reader.", func(c consumer) float64 { return float64(c.NumWaiting) }},
		{"oldest_message_age_seconds", "Age of the oldest message that is not acknowledged; 0: there is none.", func(c consumer) float64 { return c.oldest.Seconds() }},
	} {
		set.GaugesFunc(m.name, m.help, names, e.each(func(s *snapshot) map[string]float64 { return values(s.consumers, m.value) }))
	}
}

func (e *Exporter) measureStreams(set *metric.Set) {
	names := metric.Of("stream", streams()...)
	for _, m := range []struct {
		name, help string
		value      func(*jetstream.StreamInfo) float64
	}{
		{"stream_messages", "Messages in the stream.", func(i *jetstream.StreamInfo) float64 { return float64(i.State.Msgs) }},
		{"stream_bytes", "Size of the stream.", func(i *jetstream.StreamInfo) float64 { return float64(i.State.Bytes) }},
		{"stream_replicas", "Replicas that the stream is to have.", func(i *jetstream.StreamInfo) float64 { return float64(i.Config.Replicas) }},
		{"stream_current_replicas", "Replicas that are there and up to date, the leader included.", current},
	} {
		set.GaugesFunc(m.name, m.help, names, e.each(func(s *snapshot) map[string]float64 { return values(s.streams, m.value) }))
	}
	limited := metric.Of("stream", pipeline.Results, pipeline.Failures, pipeline.Audit)
	set.GaugesFunc("stream_limit_bytes", "Size that the stream may have. That of requests has no limit.", limited,
		e.each(func(s *snapshot) map[string]float64 {
			return values(s.streams, func(i *jetstream.StreamInfo) float64 { return float64(i.Config.MaxBytes) })
		}))
}

// current counts the replicas of a stream that could lead it.
func current(i *jetstream.StreamInfo) float64 {
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

// one reads the last snapshot, if there is one.
func (e *Exporter) one(read func(*snapshot) (float64, bool)) func() (float64, bool) {
	return func() (float64, bool) {
		if s := e.last.Load(); s != nil {
			return read(s)
		}
		return 0, false
	}
}

// each reads the last snapshot, if the broker has responded.
func (e *Exporter) each(read func(*snapshot) map[string]float64) func() map[string]float64 {
	return func() map[string]float64 {
		if s := e.last.Load(); s != nil && s.up {
			return read(s)
		}
		return nil
	}
}

func values[T any](of map[string]T, value func(T) float64) map[string]float64 {
	read := make(map[string]float64, len(of))
	for name, v := range of {
		read[name] = value(v)
	}
	return read
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
