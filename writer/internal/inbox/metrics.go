package inbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/service/metric"
)

// How a message is settled.
const (
	acked     = "ack"
	givenBack = "nak"
	putAside  = "dead_letter"
)

// Metrics of taking messages off the queue.
type Metrics struct {
	settled  *prometheus.CounterVec
	inFlight prometheus.Gauge
}

// NewMetrics makes the metrics in the set of the writer.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		settled: set.Counters("messages_total", "Messages taken off the queue, by how they were settled.",
			metric.Of("settlement", acked, givenBack, putAside)),
		inFlight: set.Gauge("in_flight_messages", "Messages in work."),
	}
}
