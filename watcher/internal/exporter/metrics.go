package exporter

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

func streams() []string {
	return []string{pipeline.Requests, pipeline.Results, pipeline.Failures}
}

// Measure creates the metrics. They have series only while the exporter runs. While the broker does not
// respond, only up has one.
func (e *Exporter) Measure(set *metric.Set) {
	set.OptionalGaugeFunc("up", "Whether the broker responded when it was last asked about the pipeline: 0 or 1.",
		e.fromSnapshot(func(s *snapshot) (float64, bool) { return number(s.up), true }))
	set.OptionalGaugeFunc("timers_messages", "Pending timers of retries, refreshes, rechecks and parked attempts.",
		e.fromSnapshot(func(s *snapshot) (float64, bool) { return s.timers, s.up }))
	e.measureConsumers(set)
	e.measureStreams(set)
}

func (e *Exporter) measureConsumers(set *metric.Set) {
	names := metric.Of("consumer", pipeline.FetcherConsumer, pipeline.WriterConsumer)
	gauges(e, set, names, func(s *snapshot) map[string]bool {
		present := map[string]bool{}
		for _, name := range names.Values {
			_, present[name] = s.consumers[name]
		}
		return present
	})("consumer_present", "Whether the consumer exists: 0 or 1.", number)
	gauge := gauges(e, set, names, func(s *snapshot) map[string]consumer { return s.consumers })
	gauge("consumer_paused", "Whether curlctl has paused the consumer: 0 or 1.",
		func(c consumer) float64 { return number(c.Paused) })
	gauge("backlog_messages", "Messages that were not delivered yet.",
		func(c consumer) float64 { return float64(c.NumPending) })
	gauge("in_flight_messages", "Messages that were delivered and are not acknowledged yet.",
		func(c consumer) float64 { return float64(c.NumAckPending) })
	gauge("in_flight_limit_messages", "Maximum number of messages in flight, over all replicas.",
		func(c consumer) float64 { return float64(c.Config.MaxAckPending) })
	gauge("redelivered_messages", "Messages in flight that were delivered more than once.",
		func(c consumer) float64 { return float64(c.NumRedelivered) })
	gauge("waiting_pulls", "Pending pull requests. None for long means no reader.",
		func(c consumer) float64 { return float64(c.NumWaiting) })
	gauge("oldest_message_age_seconds", "Age of the oldest unacknowledged message, 0 without one.",
		func(c consumer) float64 { return c.oldest.Seconds() })
}

func (e *Exporter) measureStreams(set *metric.Set) {
	read := func(s *snapshot) map[string]*jetstream.StreamInfo { return s.streams }
	gauge := gauges(e, set, metric.Of("stream", streams()...), read)
	gauge("stream_messages", "Messages in the stream.",
		func(i *jetstream.StreamInfo) float64 { return float64(i.State.Msgs) })
	gauge("stream_bytes", "Size of the stream.", func(i *jetstream.StreamInfo) float64 { return float64(i.State.Bytes) })
	gauge("stream_replicas", "Configured replicas of the stream.",
		func(i *jetstream.StreamInfo) float64 { return float64(i.Config.Replicas) })
	gauge("stream_current_replicas", "Replicas that are up to date, the leader included.", current)
	limited := metric.Of("stream", pipeline.Results, pipeline.Failures)
	gauges(e, set, limited, read)("stream_limit_bytes",
		"Maximum size of the stream. The stream of requests has no limit.",
		func(i *jetstream.StreamInfo) float64 { return float64(i.Config.MaxBytes) })
}

// current returns the number of up-to-date replicas of a stream.
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

// fromSnapshot returns a function that reads a value from the last snapshot, if any.
func (e *Exporter) fromSnapshot(read func(*snapshot) (float64, bool)) func() (float64, bool) {
	return func() (float64, bool) {
		if s := e.last.Load(); s != nil {
			return read(s)
		}
		return 0, false
	}
}

// gauges returns a function that creates a metric for all streams or all consumers. The metric has series
// only if the broker responded.
func gauges[T any](
	e *Exporter, set *metric.Set, names metric.Label, of func(*snapshot) map[string]T,
) func(name, help string, value func(T) float64) {
	return func(name, help string, value func(T) float64) {
		set.GaugesFunc(name, help, names, func() map[string]float64 {
			read := map[string]float64{}
			if s := e.last.Load(); s != nil && s.up {
				for name, v := range of(s) {
					read[name] = value(v)
				}
			}
			return read
		})
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
