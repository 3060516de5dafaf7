package bench

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/process"
)

// Cost is what the system used for some ConfigMaps.
type Cost struct {
	// CallsPerConfigMap are the requests of all services to the API server,
	// about ConfigMaps and Events.
	CallsPerConfigMap float64 `json:"callsPerConfigMap"`
	// Calls are the same, by resource, verb and status code, in all.
	Calls map[string]int `json:"calls"`
	// CPUPerConfigMap is the time on a processor in milliseconds, by program.
	CPUPerConfigMap map[string]float64 `json:"cpuMillisecondsPerConfigMap"`
}

// reading is what had been used at one moment.
type reading struct {
	server   cluster.Meter
	programs map[string]process.Usage
}

func (b *bench) reading(ctx context.Context) (r reading, err error) {
	if r.server, err = b.cluster.Read(ctx); err != nil {
		return r, err
	}
	r.programs, err = b.usage()
	return r, err
}

// cost is what was used between two readings. A program that was not there at
// the first one has used nothing by then.
func (r reading) cost(later reading, count int) Cost {
	used := later.server.Since(r.server)
	c := Cost{Calls: map[string]int{}, CPUPerConfigMap: map[string]float64{}}
	total := 0
	for call, n := range used.Calls {
		c.Calls[call.Resource+" "+call.Verb+" "+call.Code] += n
		total += n
	}
	c.CallsPerConfigMap = float64(total) / float64(count)
	each := func(name string, cpu time.Duration) {
		c.CPUPerConfigMap[name] = milliseconds(cpu) / float64(count)
	}
	each("kube-apiserver", used.CPU)
	for name, usage := range later.programs {
		each(name, usage.CPU-r.programs[name].CPU)
	}
	return c
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// sorted returns the names in a map.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
