package monitor

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Metric describes a metric.
type Metric struct {
	// Kind is counter, gauge or histogram, or empty if unknown.
	Kind string
	// Labels with all their values. Without values, the set is open.
	Labels map[string][]string
}

// Catalogue has all metrics.
type Catalogue struct {
	// Metrics by name.
	Metrics map[string]Metric
	// Everywhere are labels that each series may have.
	Everywhere []string
}

// NewCatalogue reads a page like deploy/docs/metrics.md, and adds the metrics of every
// process and of Prometheus.
func NewCatalogue(page string) (*Catalogue, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("read the list of metrics: %w", err)
	}
	c := &Catalogue{
		Metrics: map[string]Metric{
			"up": {Kind: "gauge"},
			"ALERTS": {
				Kind:   "gauge",
				Labels: map[string][]string{"alertname": nil, "alertstate": {"pending", "firing"}, "severity": nil},
			},
			"go_goroutines":                 {Kind: "gauge"},
			"process_cpu_seconds_total":     {Kind: "counter"},
			"process_resident_memory_bytes": {Kind: "gauge"},
			"process_start_time_seconds":    {Kind: "gauge"},
		},
		Everywhere: []string{"__name__", "namespace", "job", "instance"},
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram)(?:, ([^|]*))? \\|")
	for _, cells := range row.FindAllStringSubmatch(string(text), -1) {
		c.add(cells[1], cells[2], cells[3])
	}
	return c, nil
}

// add adds a metric from its row. If several services have it, their labels are merged.
func (c *Catalogue) add(name, kind, row string) {
	m := c.Metrics[name]
	if m.Labels == nil {
		m = Metric{Kind: kind, Labels: map[string][]string{}}
	}
	label := regexp.MustCompile("^`([a-z_]+)`: (.*)$")
	value := regexp.MustCompile("`([^`]+)`")
	for part := range strings.SplitSeq(row, "<br>") {
		cells := label.FindStringSubmatch(part)
		if cells == nil {
			continue
		}
		var values []string
		if strings.HasPrefix(cells[2], "`") { // else a text describes what others define
			for _, v := range value.FindAllStringSubmatch(cells[2], -1) {
				values = append(values, v[1])
			}
		}
		m.Labels[cells[1]] = append(m.Labels[cells[1]], values...)
	}
	c.Metrics[name] = m
}
