package process

import (
	"runtime"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics returns the metrics that every service has.
func Metrics(name string) []metric.Definition {
	set := metric.New(prometheus.NewRegistry(), name)
	measureConnection(set, NewHealth().Part("nats"))
	measureBuild(set, name)
	return set.Definitions()
}

// MetricsWithoutNATS returns them for a service that does not use the broker.
func MetricsWithoutNATS(name string) []metric.Definition {
	set := metric.New(prometheus.NewRegistry(), name)
	measureBuild(set, name)
	return set.Definitions()
}

// measureBuild exposes service and version.
func measureBuild(set *metric.Set, name string) {
	d := metric.Definition{
		Name: metric.Project + "_build_info", Kind: metric.Gauge,
		Help: "Always 1.",
		Labels: []metric.Label{
			metric.Of("component", name),
			{Name: "version", Open: "version of the release"},
			{Name: "goversion", Open: "version of Go"},
		},
	}
	set.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: d.Name, Help: d.Help,
		ConstLabels: prometheus.Labels{"component": name, "version": BuildVersion(), "goversion": runtime.Version()},
	}, func() float64 { return 1 }), d)
}

// measureConnection creates the metrics of the connection to the broker, which the caller stores once
// it is established. The part is ready while connected.
func measureConnection(set *metric.Set, part *Part) *atomic.Pointer[nats.Conn] {
	conn := new(atomic.Pointer[nats.Conn])
	set.GaugeFunc("nats_connected", "Whether there is a connection to NATS: 0 or 1.", func() float64 {
		if part.why() == "" {
			return 1
		}
		return 0
	})
	set.CounterFunc("nats_reconnects_total", "Reconnections to NATS.", func() float64 {
		if nc := conn.Load(); nc != nil {
			return float64(nc.Stats().Reconnects)
		}
		return 0
	})
	return conn
}
