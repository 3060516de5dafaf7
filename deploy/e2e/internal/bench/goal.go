package bench

import (
	"cmp"
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

// compare finds the middle round, and compares what was measured with the goals.
func (r *Report) compare() {
	order := make([]int, len(r.Rounds))
	calls := 0.0
	for i := range r.Rounds {
		order[i] = i
		calls = max(calls, r.Rounds[i].Pipeline.Cost.CallsPerConfigMap)
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(r.Rounds[i].Ratio, r.Rounds[j].Ratio) })
	r.Middle = order[(len(order)-1)/2]

	r.atLeast("pipeline to bare patches, %", 100*r.Rounds[r.Middle].Ratio, 60)
	r.atMost("API calls per ConfigMap", calls, 1.1)
	if r.Idle != nil {
		r.atMost("annotation to data when idle, above the server's time, p50 ms", r.Idle.AboveServer.P50, 25)
	}
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
