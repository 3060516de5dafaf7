package monitor

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// scrapeTimeout is the time limit for a target.
const scrapeTimeout = 5 * time.Second

// Process is a target of scrapes.
type Process struct {
	// Job is the name of the service.
	Job string
	// Address serves /metrics.
	Address string
}

// scrape reads the metrics of a target. As in Prometheus, series that disappeared become stale, and "up" shows
// whether the target responded.
func (m *Monitor) scrape(ctx context.Context, t Process, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	found, err := process.Samples(ctx, "http://"+t.Address+"/metrics")
	up := 1.0
	if err != nil {
		up = 0
	}
	found = append(found, &model.Sample{Metric: model.Metric{model.MetricNameLabel: "up"}, Value: model.SampleValue(up)})
	before, shown := m.shown[t.Address], map[string]labels.Labels{}
	for _, s := range found {
		l := t.labels(s.Metric)
		shown[l.String()] = l
		m.memory.append(l, now, float64(s.Value))
	}
	for key, l := range before {
		if _, still := shown[key]; !still {
			m.memory.append(l, now, math.Float64frombits(value.StaleNaN))
		}
	}
	m.shown[t.Address] = shown
}

// labels returns the labels of a series, including those of its target.
func (t Process) labels(metric model.Metric) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	b.Set("job", t.Job).Set("instance", t.Address)
	for name, text := range metric {
		b.Set(string(name), string(text))
	}
	return b.Labels()
}
