package writer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
)

// Metrics returns the definitions of the writer's metrics.
func Metrics() []metric.Definition {
	m := newMetrics(prometheus.NewRegistry())
	m.measure(new(apiserver.Breaker))
	return append(m.own.Definitions(), m.standard.Definitions()...)
}

type metrics struct {
	own, standard *metric.Set

	applier *apply.Metrics
	calls   *kube.Calls
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{own: metric.New(registry, "writer"), standard: metric.Standard(registry)}
	m.applier = apply.NewMetrics(m.own)
	m.calls = kube.NewCalls(m.standard, "GET", "PATCH", "POST")
	return m
}

// measure registers the metrics of the breaker.
func (m *metrics) measure(b *apiserver.Breaker) {
	m.own.GaugeFunc("api_server_available", "Whether the Kubernetes API server is available: 0 or 1.", func() float64 {
		if b.Available() {
			return 1
		}
		return 0
	})
	m.own.GaugeFunc("denied_namespaces", "Namespaces in which the writer recently lacked a permission.",
		func() float64 { return float64(b.Denied()) })
}
