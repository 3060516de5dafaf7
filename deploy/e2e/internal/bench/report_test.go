package bench

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

// round makes one that reaches so much of 1,000 bare patches per second.
func round(ratio, calls float64) Round {
	return Round{
		Placement: Shared, Before: Ceiling{PerSecond: 900}, After: Ceiling{PerSecond: 1100},
		Pipeline: Pipeline{PerSecond: 1000 * ratio, Cost: Cost{CallsPerConfigMap: calls}},
	}.compare()
}

// apart is one in which the control plane had a processor of its own.
func apart(ratio, calls float64) Round {
	r := round(ratio, calls)
	r.Placement = Apart
	return r
}

// costly is one in which a bare patch took 1 ms of the API server, and a ConfigMap
// that much of our programs and of the API server.
func costly(ratio, ours, server float64) Round {
	r := round(ratio, 1)
	bare := Cost{CPUPerConfigMap: map[string]float64{"kube-apiserver": 1, "etcd": 9, "bench": 9}}
	r.Before.Cost, r.After.Cost = bare, bare
	r.Pipeline.Cost.CPUPerConfigMap = map[string]float64{"kube-apiserver": server, "writer": ours, "etcd": 9, "bench": 9}
	return r
}

func TestGoals(t *testing.T) {
	for name, test := range map[string]struct {
		report Report
		missed []string
	}{
		"all met": {Report{
			Rounds:  []Round{round(0.5, 1), round(0.8, 1), round(0.71, 1.1), apart(0.91, 1), costly(0.75, 0.4, 1.15)},
			Idle:    &Idle{Total: Quantiles{P50: 30}, AboveServer: Quantiles{P50: 8, P99: 40}},
			Foreign: &Foreign{Watcher: usage.Usage{RSS: 40 << 20, PeakRSS: 60 << 20}},
		}, nil},
		"the middle round is too slow":     {Report{Rounds: []Round{round(0.9, 1), round(0.5, 1), round(0.69, 1)}}, []string{"bare patches"}},
		"the middle one of those apart is": {Report{Rounds: []Round{round(0.7, 1), apart(0.95, 1), apart(0.89, 1), apart(0.8, 1)}}, []string{"apart"}},
		"the programs need too much":       {Report{Rounds: []Round{costly(0.7, 0.41, 1)}}, []string{"fetcher"}},
		"the API server needs too much":    {Report{Rounds: []Round{costly(0.7, 0.1, 1.16)}}, []string{"CPU of the API"}},
		"a call too many in one round":     {Report{Rounds: []Round{round(0.7, 1), round(0.7, 1.2), round(0.7, 1)}}, []string{"API calls"}},
		"two rounds: the slower one":       {Report{Rounds: []Round{round(0.7, 1), round(0.5, 1)}}, []string{"bare patches"}},
		"slow when idle":                   {Report{Rounds: []Round{round(0.7, 1)}, Idle: &Idle{AboveServer: Quantiles{P50: 8.1, P99: 9}}}, []string{"idle"}},
		"a peak too high":                  {Report{Rounds: []Round{round(0.7, 1)}, Foreign: &Foreign{Watcher: usage.Usage{RSS: 1 << 20, PeakRSS: 61 << 20}}}, []string{"foreign"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.report.compare()
			var missed []string
			for _, g := range test.report.Goals {
				if !g.Met {
					missed = append(missed, g.Name)
				}
			}
			if !slices.EqualFunc(missed, test.missed, strings.Contains) {
				t.Errorf("missed %q, want %q", missed, test.missed)
			}
			var table bytes.Buffer
			if err := test.report.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(table.String(), "MISSED"); got != len(test.missed) {
				t.Errorf("the table tells %d misses, want %d:\n%s", got, len(test.missed), table.String())
			}
		})
	}
}

func TestTheBoundOfARoundIsThatOfWhatIsShared(t *testing.T) {
	bare := Cost{CPUPerConfigMap: map[string]float64{"kube-apiserver": 0.8, "etcd": 0.1, "bench": 0.1}}
	filled := Cost{CPUPerConfigMap: map[string]float64{"kube-apiserver": 0.9, "etcd": 0.1, "bench": 0.1, "writer": 0.9}}
	for placement, want := range map[Placement]float64{Shared: 0.5, Apart: 0.9} {
		r := Round{Placement: placement, Before: Ceiling{Cost: bare}, After: Ceiling{Cost: bare}, Pipeline: Pipeline{Cost: filled}}.compare()
		if math.Abs(r.Bound-want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", placement, r.Bound, want)
		}
	}
	if r := round(0.5, 1); r.Bound != 0 {
		t.Errorf("got %v where no time is known, want 0", r.Bound)
	}
}

func TestQuantiles(t *testing.T) {
	var times []time.Duration
	for i := range 101 {
		times = append(times, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := quantiles(times), (Quantiles{P50: 50, P90: 90, P99: 99, Max: 100}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := quantiles([]time.Duration{time.Second}), (Quantiles{P50: 1000, P90: 1000, P99: 1000, Max: 1000}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCost(t *testing.T) {
	before := snapshot{
		server:   cluster.Meter{CPU: time.Second},
		programs: map[string]usage.Usage{"writer": {CPU: time.Second}},
	}
	after := snapshot{
		server: cluster.Meter{CPU: 3 * time.Second, Calls: map[cluster.Call]int{
			{Resource: "configmaps", Verb: "PATCH", Code: "200"}: 10,
			{Resource: "events", Verb: "POST", Code: "201"}:      1,
		}},
		programs: map[string]usage.Usage{"writer": {CPU: 2 * time.Second}, "watcher": {CPU: time.Second}},
	}
	got := before.cost(after, 10)
	if got.CallsPerConfigMap != 1.1 || got.Calls["configmaps PATCH 200"] != 10 || got.Calls["events POST 201"] != 1 {
		t.Errorf("got calls %v, %v each", got.Calls, got.CallsPerConfigMap)
	}
	for name, want := range map[string]float64{"kube-apiserver": 200, "writer": 100, "watcher": 100} {
		if got.CPUPerConfigMap[name] != want {
			t.Errorf("%s: %v ms each, want %v", name, got.CPUPerConfigMap[name], want)
		}
	}
}
