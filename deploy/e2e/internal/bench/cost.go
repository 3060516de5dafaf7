package bench

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

// Cost is what the system used for some ConfigMaps.
type Cost struct {
	// CallsPerConfigMap are the requests to the API server about ConfigMaps
	// and Events, without those of the benchmark itself.
	CallsPerConfigMap float64 `json:"callsPerConfigMap"`
	// Calls are the same, by resource, verb and status code, in all.
	Calls map[string]int `json:"calls"`
	// CPUPerConfigMap is the time on a processor in milliseconds, by program.
	CPUPerConfigMap map[string]float64 `json:"cpuMillisecondsPerConfigMap"`
}

// snapshot is what had been used at one moment.
type snapshot struct {
	server   cluster.Meter
	programs map[string]usage.Usage
}

func (b *bench) snapshot(ctx context.Context) (r snapshot, err error) {
	if r.server, err = b.cluster.Read(ctx); err != nil {
		return r, err
	}
	r.programs, err = b.usage()
	return r, err
}

// usage of all programs, the benchmark itself and the control plane included where
// it runs here; empty where the operating system does not report it.
func (b *bench) usage() (map[string]usage.Usage, error) {
	used, err := b.system.Usage()
	if errors.Is(err, usage.ErrUnknown) {
		return nil, nil
	}
	if err == nil {
		used["bench"], err = usage.Of(os.Getpid())
	}
	for name, pid := range b.control {
		var errOf error
		used[name], errOf = usage.Of(pid)
		err = errors.Join(err, errOf)
	}
	return used, err
}

// cost is what was used between two snapshots. A program that was not there at
// the first one has used nothing by then.
func (r snapshot) cost(later snapshot, count int) Cost {
	used := later.server.Since(r.server)
	c := Cost{Calls: map[string]int{}, CPUPerConfigMap: map[string]float64{}}
	total := 0
	for call, n := range used.Calls {
		c.Calls[call.Resource+" "+call.Verb+" "+call.Code] += n
		total += n
	}
	c.CallsPerConfigMap = float64(total) / float64(count)
	each := func(name string, cpu time.Duration) {
		c.CPUPerConfigMap[name] = usage.Milliseconds(cpu) / float64(count)
	}
	each("kube-apiserver", used.CPU)
	for name, used := range later.programs {
		each(name, used.CPU-r.programs[name].CPU)
	}
	return c
}

// sorted returns the names in a map.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
