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
	// Labels maps each label to its values. Without values, any value is possible.
	Labels map[string][]string
}

// Catalogue describes all metrics.
type Catalogue struct {
	// Metrics by name.
	Metrics map[string]Metric
	// Everywhere are labels that any series may have.
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
		c.Metrics[cells[1]] = Metric{Kind: cells[2], Labels: labelsOf(cells[3])}
	}
	return c, nil
}

// labelsOf returns the labels of a row with their values, or without values if the row describes them in words.
func labelsOf(row string) map[string][]string {
	labels := map[string][]string{}
	for part := range strings.SplitSeq(row, "<br>") {
		name, values, found := strings.Cut(strings.TrimPrefix(part, "`"), "`: ")
		if !found {
			continue
		}
		labels[name] = nil
		if listed, is := strings.CutPrefix(values, "`"); is {
			labels[name] = strings.Split(strings.TrimSuffix(listed, "`"), "`, `")
		}
	}
	return labels
}
