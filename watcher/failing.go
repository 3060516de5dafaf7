package watcher

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

const (
	// maxNamespaces is the maximum number of namespaces with a series of their own, because tenants may create any number.
	maxNamespaces = 20
	// otherNamespaces is the series of all others.
	otherNamespaces = "(others)"
)

// measureFailing creates the metric by namespace, so that an alert can be routed to its owner. The label is not
// "namespace", which Prometheus sets to that of the watcher.
func (m *metrics) measureFailing(k keys) {
	m.own.GaugesFunc("failing_keys", "Keys that are failing, refused or contested, by namespace: the 20 with the most, "+
		"and all others.", metric.Label{Name: "object_namespace", Open: "names of namespaces, `(others)`"},
		func() map[string]float64 { return mostFailing(k) })
}

func mostFailing(k keys) map[string]float64 {
	counts := map[string]float64{}
	k.each(func(namespace string, c keystate.Condition) {
		switch c.State {
		case keystate.Failing, keystate.Refused, keystate.Contested:
			counts[namespace]++
		case keystate.OK, keystate.Pending, keystate.Stale, keystate.Ignored:
		}
	})
	most := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, namespace := range most[min(len(most), maxNamespaces):] {
		counts[otherNamespaces] += counts[namespace]
		delete(counts, namespace)
	}
	return counts
}
