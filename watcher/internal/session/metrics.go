package session

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics of a Runner.
type Metrics struct {
	queue            *kube.QueueMetrics
	sessions, purges prometheus.Counter
	outOfScope       prometheus.Gauge
}

// NewMetrics creates the metrics in the watcher's set and in one with standard names.
func NewMetrics(own, standard *metric.Set) *Metrics {
	return &Metrics{
		sessions: own.Counter("sessions_total", "How often the watcher read the whole stream of requests."),
		purges: own.Counter("purges_total", "How often another client removed wants from the stream of requests. "+
			"The watcher fills it again at once."),
		outOfScope: own.Gauge("out_of_scope_wants",
			"Wants of unwatched namespaces from other installations, when the stream of requests was last read. They are "+
				"ignored."),
		queue: kube.NewQueueMetrics(standard, QueueName),
	}
}
