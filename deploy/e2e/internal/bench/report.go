package bench

import (
	"runtime"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

// Report is what was measured. The JSON names carry the units.
type Report struct {
	Setting Setting `json:"setting"`
	// Rounds in the order in which they were made, and for each placement the one
	// with the middle ratio, as its index in Rounds.
	Rounds []Round           `json:"rounds"`
	Middle map[Placement]int `json:"middleRound"`
	// Idle and Foreign are nil when they were not asked for.
	Idle    *Idle                  `json:"idle,omitempty"`
	Memory  map[string]usage.Usage `json:"memory"`
	Foreign *Foreign               `json:"foreign,omitempty"`
	Goals   []Goal                 `json:"goals"`
}

// Setting is where and with what the run was made.
type Setting struct {
	Time       time.Time `json:"time"`
	Go         string    `json:"go"`
	System     string    `json:"system"`
	Cores      int       `json:"cores"`
	Kubernetes string    `json:"kubernetes"`
	N          int       `json:"n"`
	Bytes      int       `json:"bodyBytes"`
	SharedURL  bool      `json:"sharedUrl"`
	// ScrapeSeconds is how often metrics were read meanwhile; 0: never.
	ScrapeSeconds float64 `json:"scrapeSeconds"`
}

func (c *Config) setting() Setting {
	return Setting{
		Time: time.Now().UTC().Truncate(time.Second),
		Go:   runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		N: c.N, Bytes: c.Size, SharedURL: c.Shared, ScrapeSeconds: c.Scrape.Seconds(),
	}
}

// Ceiling is what the API server does when it is patched by a loop.
type Ceiling struct {
	PerSecond float64 `json:"perSecond"`
	Cost      Cost    `json:"cost"`
}

// Round compares the pipeline with the bare API server.
type Round struct {
	Placement Placement `json:"placement"`
	Before    Ceiling   `json:"bareBefore"`
	Pipeline  Pipeline  `json:"pipeline"`
	After     Ceiling   `json:"bareAfter"`
	// Bare is the mean of Before and After, Ratio what the pipeline reaches of
	// it, and RatioFilling the same from the first ConfigMap filled on.
	Bare         float64 `json:"barePerSecond"`
	Ratio        float64 `json:"ratio"`
	RatioFilling float64 `json:"ratioFilling"`
	// Bound is what Ratio would be if no processor was ever idle: the time that a bare
	// patch takes ÷ that which a filled ConfigMap takes, of the control plane where it
	// has a processor of its own, else of all programs; 0: it is unknown.
	Bound float64 `json:"ratioBound"`
}

// compare fills in the ratios.
func (r Round) compare() Round {
	r.Bare = (r.Before.PerSecond + r.After.PerSecond) / 2
	r.Ratio = r.Pipeline.PerSecond / r.Bare
	r.RatioFilling = r.Pipeline.PerSecondFilling / r.Bare
	var bare, filled float64
	for name, cpu := range r.Pipeline.Cost.CPUPerConfigMap {
		if r.Placement != Apart || controlPlane(name) {
			filled += cpu
			bare += (r.Before.Cost.CPUPerConfigMap[name] + r.After.Cost.CPUPerConfigMap[name]) / 2
		}
	}
	if filled > 0 {
		r.Bound = bare / filled
	}
	return r
}

// controlPlane reports whether a program is a part of it.
func controlPlane(name string) bool { return name == "etcd" || name == "kube-apiserver" }

// Pipeline is how long the system took for all ConfigMaps.
type Pipeline struct {
	// Seconds from the start of the watcher's process to the last ConfigMap
	// filled; the others to what happened in between.
	Seconds          float64 `json:"seconds"`
	FirstGetSeconds  float64 `json:"firstGetSeconds"`
	FirstFillSeconds float64 `json:"firstFillSeconds"`
	LastGetSeconds   float64 `json:"lastGetSeconds"`
	// PerSecond counts from the start of the watcher, PerSecondFilling from
	// the first ConfigMap filled.
	PerSecond        float64 `json:"perSecond"`
	PerSecondFilling float64 `json:"perSecondFilling"`
	// Gets is the number of requests to the server with the data.
	Gets int  `json:"gets"`
	Cost Cost `json:"cost"`
}

// Idle is how long single ConfigMaps waited for their data.
type Idle struct {
	ConfigMaps int `json:"configMaps"`
	// Total is the time from the API server's answer to the annotation to the
	// data in a watch; AboveServer the same without the time that the server
	// with the data took.
	Total       Quantiles `json:"totalMilliseconds"`
	AboveServer Quantiles `json:"aboveServerMilliseconds"`
	// ToGet is its part before the GET, ToFill that after it.
	ToGet  Quantiles `json:"toGetMilliseconds"`
	ToFill Quantiles `json:"toFillMilliseconds"`
	Cost   Cost      `json:"cost"`
}

// Quantiles of times in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Foreign is the watcher among ConfigMaps that are not ours.
type Foreign struct {
	ConfigMaps   int         `json:"configMaps"`
	Bytes        int         `json:"bytes"`
	ReadySeconds float64     `json:"readySeconds"`
	Watcher      usage.Usage `json:"watcher"`
}
