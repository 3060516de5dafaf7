package cluster

import (
	"bytes"
	"context"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics of the API server that Read looks at.
const (
	requestsMetric = "apiserver_request_total"
	cpuMetric      = "process_cpu_seconds_total"
)

// Meter is what the API server has done since its start.
type Meter struct {
	// Calls about ConfigMaps and Events by all clients but this process.
	// Watches count when they end.
	Calls map[Call]int
	// CPU time of the API server.
	CPU time.Duration
}

// Read reads the meter. It needs the right to GET /metrics, and counts all of
// the cluster's requests only where there is one API server.
func (c *Cluster) Read(ctx context.Context) (Meter, error) {
	own := c.own.snapshot()
	text, err := c.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return Meter{}, fmt.Errorf("read the metrics of the API server: %w", err)
	}
	return parse(text, own)
}

// parse reads the metrics, and takes our own calls out.
func parse(text []byte, own map[Call]int) (Meter, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(pick(text)))
	if err != nil {
		return Meter{}, fmt.Errorf("read the metrics of the API server: %w", err)
	}
	m := Meter{Calls: map[Call]int{}}
	for _, metric := range families[requestsMetric].GetMetric() {
		if call := labelled(metric); counted(call.Resource) {
			m.Calls[call] += int(value(metric))
		}
	}
	for call, count := range own {
		m.Calls[call] -= count
	}
	for _, metric := range families[cpuMetric].GetMetric() {
		m.CPU += time.Duration(value(metric) * float64(time.Second))
	}
	return m, nil
}

// Since returns what happened between an earlier reading and m.
func (m Meter) Since(earlier Meter) Meter {
	delta := Meter{Calls: map[Call]int{}, CPU: m.CPU - earlier.CPU}
	for call, count := range m.Calls {
		if n := count - earlier.Calls[call]; n != 0 {
			delta.Calls[call] = n
		}
	}
	return delta
}

// pick leaves the lines about the metrics that are looked at. There are a
// hundred times as many others.
func pick(text []byte) []byte {
	var left []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(requestsMetric+"{")) || bytes.HasPrefix(line, []byte(cpuMetric+" ")) {
			left = append(left, line...)
		}
	}
	return left
}

func labelled(metric *dto.Metric) Call {
	var c Call
	for _, label := range metric.GetLabel() {
		switch label.GetName() {
		case "resource":
			c.Resource = label.GetValue()
		case "verb":
			c.Verb = label.GetValue()
		case "code":
			c.Code = label.GetValue()
		}
	}
	return c
}

// value returns the value of a metric whose type was left out with its comment.
func value(metric *dto.Metric) float64 { return metric.GetUntyped().GetValue() }
