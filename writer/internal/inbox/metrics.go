package inbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics are the metrics of reading messages.
type Metrics struct {
	messages *prometheus.CounterVec
	inFlight prometheus.Gauge
}

// NewMetrics registers the metrics in the set of the writer. limit is the maximum number of
// messages in flight.
func NewMetrics(set *metric.Set, limit int) *Metrics {
	set.GaugeFunc("in_flight_limit_messages", "Maximum number of messages in flight.",
		func() float64 { return float64(limit) })
	return &Metrics{
		messages: set.Counters("messages_total", "Messages taken off the queue, by what became of them.",
			metric.Of("disposition", pipeline.Dispositions()...)),
		inFlight: set.Gauge("in_flight_messages", "Messages in flight."),
	}
}
