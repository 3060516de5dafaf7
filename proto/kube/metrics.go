package kube

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// noResponse is the status code of a request without a response, as in Kubernetes components.
const noResponse = "<error>"

// RequestMetrics counts requests to the API server under the names that Kubernetes components use. The
// implementation in component-base is global, adds the server's address as a label and has many
// unused series, so this one replaces it for one configuration.
type RequestMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// NewRequestMetrics creates the metrics in a set with standard names, for the methods that a service uses.
func NewRequestMetrics(set *metric.Set, methods ...string) *RequestMetrics {
	const name = "rest_client_requests_total"
	const help = "Requests to the API server, by method and status code. " + noResponse + ": no response."
	method := metric.Labeled("method", methods...)
	m := &RequestMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code", "method"}),
		durations: set.Histograms("rest_client_request_duration_seconds",
			"Time until the response headers from the API server, by method. A watch continues after that.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 4, 8, 15, 30}, method),
	}
	for _, name := range method.Values {
		m.requests.WithLabelValues("200", name)
		m.requests.WithLabelValues(noResponse, name)
	}
	set.Add(m.requests, metric.Definition{
		Name: name, Kind: metric.Counter, Help: help,
		Labels: []metric.Label{{Name: "code", Open: "HTTP status codes, `<error>`"}, method},
	})
	return m
}

// Counted returns a copy of a configuration whose requests are counted.
func (m *RequestMetrics) Counted(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{RequestMetrics: m, next: next} })
	return config
}

// counted counts requests.
type counted struct {
	*RequestMetrics
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := c.next.RoundTrip(r)
	code := noResponse
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	c.requests.WithLabelValues(code, r.Method).Inc()
	c.durations.WithLabelValues(r.Method).Observe(time.Since(began).Seconds())
	return response, err
}

// WrappedRoundTripper lets client-go unwrap it.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }

// QueueMetrics are the metrics of one work queue under the names that Kubernetes components use.
// Several queues can use the same name one after another.
type QueueMetrics struct {
	depth, unfinished, longest prometheus.Gauge
	adds, retries              prometheus.Counter
	waited, worked             prometheus.Observer
}

var _ workqueue.MetricsProvider = (*QueueMetrics)(nil)

// NewQueueMetrics creates the metrics of the queue with that name in a set with standard names.
func NewQueueMetrics(set *metric.Set, queue string) *QueueMetrics {
	name := metric.Labeled("name", queue)
	gauge := func(suffix, help string) prometheus.Gauge {
		return set.Gauges("workqueue_"+suffix, help, name).WithLabelValues(queue)
	}
	counter := func(suffix, help string) prometheus.Counter {
		return set.Counters("workqueue_"+suffix, help, name).WithLabelValues(queue)
	}
	histogram := func(suffix, help string) prometheus.Observer {
		return set.Histograms("workqueue_"+suffix, help, prometheus.ExponentialBuckets(1e-5, 4, 12),
			name).WithLabelValues(queue)
	}
	return &QueueMetrics{
		depth:      gauge("depth", "Objects that wait in the queue."),
		adds:       counter("adds_total", "Objects that were added to the queue."),
		retries:    counter("retries_total", "Objects that were added again after an error, or for a later check."),
		waited:     histogram("queue_duration_seconds", "Time that an object waited in the queue."),
		worked:     histogram("work_duration_seconds", "Time to process an object."),
		unfinished: gauge("unfinished_work_seconds", "Total time of the work in progress, over all workers."),
		longest:    gauge("longest_running_processor_seconds", "Time of the longest work in progress."),
	}
}

// Reset clears the metrics at the end of the queue.
func (q *QueueMetrics) Reset() {
	q.depth.Set(0)
	q.unfinished.Set(0)
	q.longest.Set(0)
}

// NewDepthMetric implements workqueue.MetricsProvider, like the methods below.
func (q *QueueMetrics) NewDepthMetric(string) workqueue.GaugeMetric { return q.depth }

// NewAddsMetric returns the counter of added objects.
func (q *QueueMetrics) NewAddsMetric(string) workqueue.CounterMetric { return q.adds }

// NewLatencyMetric returns the histogram of the time in the queue.
func (q *QueueMetrics) NewLatencyMetric(string) workqueue.HistogramMetric { return q.waited }

// NewWorkDurationMetric returns the histogram of processing times.
func (q *QueueMetrics) NewWorkDurationMetric(string) workqueue.HistogramMetric { return q.worked }

// NewUnfinishedWorkSecondsMetric returns the gauge of unfinished work.
func (q *QueueMetrics) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return q.unfinished
}

// NewLongestRunningProcessorSecondsMetric returns the gauge of the longest work.
func (q *QueueMetrics) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return q.longest
}

// NewRetriesMetric returns the counter of objects added again.
func (q *QueueMetrics) NewRetriesMetric(string) workqueue.CounterMetric { return q.retries }
