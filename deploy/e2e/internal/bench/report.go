package bench

import (
	"runtime"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/process"
)

// Report is what was measured. The JSON names carry the units.
type Report struct {
	Setting  Setting  `json:"setting"`
	Ceiling  Ceiling  `json:"ceiling"`
	Pipeline Pipeline `json:"pipeline"`
	// Idle and Foreign are nil when they were not asked for.
	Idle    *Idle                    `json:"idle,omitempty"`
	Memory  map[string]process.Usage `json:"memory"`
	Foreign *Foreign                 `json:"foreign,omitempty"`
	Goals   []Goal                   `json:"goals"`
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
}

func (c *Config) setting() Setting {
	return Setting{
		Time: time.Now().UTC().Truncate(time.Second),
		Go:   runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		N: c.N, Bytes: c.Size, SharedURL: c.Shared,
	}
}

// Ceiling is the rate of bare patches, before and after the pipeline.
type Ceiling struct {
	Before float64 `json:"beforePerSecond"`
	After  float64 `json:"afterPerSecond"`
	// CPUPerPatch is the time on a processor that the API server took, without
	// its etcd, in milliseconds.
	CPUPerPatch float64 `json:"cpuMillisecondsPerPatch"`
}

// Mean is what the pipeline is compared with.
func (c Ceiling) Mean() float64 { return (c.Before + c.After) / 2 }

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
	// RatioToCeiling is PerSecond over the ceiling, RatioFilling
	// PerSecondFilling over it.
	RatioToCeiling float64 `json:"ratioToCeiling"`
	RatioFilling   float64 `json:"ratioFilling"`
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
	ConfigMaps   int           `json:"configMaps"`
	Bytes        int           `json:"bytes"`
	ReadySeconds float64       `json:"readySeconds"`
	Watcher      process.Usage `json:"watcher"`
}
