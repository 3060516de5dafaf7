package bench

import (
	"cmp"
	"fmt"
	"slices"
)

// Goal is a figure that the project holds itself to. Missing one fails no run:
// machines differ.
type Goal struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// AtLeast or AtMost is set.
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
	Met     bool    `json:"met"`
}

const mebibyte = 1 << 20

// manyAnnotated is from how many on the memory of the watcher is a goal.
const manyAnnotated = 20_000

// atLeastOfBare is what the pipeline is to reach of the rate of bare patches, in
// percent.
func (p Placement) atLeastOfBare() float64 {
	if p == Apart {
		return 90
	}
	return 70
}

// compare finds the middle rounds, and compares what was measured with the goals.
func (r *Report) compare() {
	r.Middle = map[Placement]int{}
	calls := 0.0
	for _, p := range []Placement{Shared, Apart} {
		var order []int
		for i := range r.Rounds {
			if r.Rounds[i].Placement == p {
				order = append(order, i)
			}
		}
		if len(order) == 0 {
			continue
		}
		slices.SortFunc(order, func(i, j int) int { return cmp.Compare(r.Rounds[i].Ratio, r.Rounds[j].Ratio) })
		r.Middle[p] = order[(len(order)-1)/2]
		r.atLeast(fmt.Sprintf("pipeline to bare patches, %s, %%", p), 100*r.Rounds[r.Middle[p]].Ratio, p.atLeastOfBare())
	}
	for i := range r.Rounds {
		calls = max(calls, r.Rounds[i].Pipeline.Cost.CallsPerConfigMap)
	}
	r.atMost("API calls per ConfigMap", calls, 1.1)
	r.compareCPU()
	r.compareIdle()
	r.compareMemory()
}

// compareCPU compares the middle one of the rounds in which all programs shared
// the processors.
func (r *Report) compareCPU() {
	middle := &r.Rounds[r.Middle[Shared]]
	const server = "kube-apiserver"
	bare := (middle.Before.Cost.CPUPerConfigMap[server] + middle.After.Cost.CPUPerConfigMap[server]) / 2
	if bare == 0 {
		return
	}
	filled := middle.Pipeline.Cost
	r.atMost("CPU of watcher, fetcher, writer and NATS to that of the API server for a bare patch", ours(filled)/bare, 0.40)
	r.atMost("CPU of the API server to that for a bare patch", filled.CPUPerConfigMap[server]/bare, 1.15)
}

// ours is the processor time of the programs that we bring, in milliseconds for a
// ConfigMap.
func ours(c Cost) (sum float64) {
	for _, name := range []string{"watcher", "fetcher", "writer", "nats"} {
		sum += c.CPUPerConfigMap[name]
	}
	return sum
}

func (r *Report) compareIdle() {
	if r.Idle == nil {
		return
	}
	r.atMost("annotation to data when idle, above the server's time, p50 ms", r.Idle.AboveServer.P50, 8)
	r.atMost("annotation to data when idle, above the server's time, p99 ms", r.Idle.AboveServer.P99, 40)
}

func (r *Report) compareMemory() {
	if used := r.Memory["watcher"]; r.Setting.N >= manyAnnotated && used.RSS > 0 {
		// The goal is for so many; with more, that much more for each of them.
		bound := 90 * float64(r.Setting.N) / manyAnnotated
		r.atMost("watcher with that many annotated ConfigMaps, RSS, MiB", float64(used.RSS)/mebibyte, bound)
	}
	if r.Foreign != nil && r.Foreign.Watcher.PeakRSS > 0 {
		r.atMost("watcher among foreign ConfigMaps, peak RSS, MiB", float64(r.Foreign.Watcher.PeakRSS)/mebibyte, 60)
	}
}

func (r *Report) atLeast(name string, value, bound float64) {
	r.Goals = append(r.Goals, Goal{Name: name, Value: value, AtLeast: bound, Met: value >= bound})
}

func (r *Report) atMost(name string, value, bound float64) {
	r.Goals = append(r.Goals, Goal{Name: name, Value: value, AtMost: bound, Met: value <= bound})
}
