package inbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics of taking messages off the queue.
type Metrics struct {
	messages *prometheus.CounterVec
	inFlight prometheus.Gauge
}

// NewMetrics makes the metrics in the set of the writer, which has at most limit
// messages in work.
func NewMetrics(set *metric.Set, limit int) *Metrics {
	set.GaugeFunc("in_flight_limit_messages", "Messages that may be in work at a time.", func() float64 { return float64(limit) })
	return &Metrics{
		messages: set.Counters("messages_total", "Messages taken off the queue, by what became of them.",
			metric.Of("disposition", pipeline.Dispositions()...)),
		inFlight: set.Gauge("in_flight_messages", "Messages in work."),
	}
}
