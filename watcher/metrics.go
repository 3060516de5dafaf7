package watcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/watcher/internal/observe"
)

func registerCache(reg prometheus.Registerer, objects *observe.Store) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "curlmethat_watcher_annotated_objects",
		Help: "ConfigMaps in the cache that ask for something, or that were once written.",
	}, func() float64 { return float64(objects.Len()) }))
}
