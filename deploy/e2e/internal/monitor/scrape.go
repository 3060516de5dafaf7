package monitor

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// scrapeTimeout is the time limit for a target.
const scrapeTimeout = 5 * time.Second

// Process is a process that shows metrics.
type Process struct {
	// Job is the name of the service.
	Job string
	// Address where it serves /metrics.
	Address string
}

// scrape reads the metrics of a target. As in Prometheus, series that it does
// not have any more are stale, and "up" is whether it responded.
func (m *Monitor) scrape(ctx context.Context, t Process, now time.Time) {
	families, err := read(ctx, "http://"+t.Address+"/metrics")
	up := 1.0
	if err != nil {
		up = 0
	}
	m.memory.append(t.labels("up"), now, up)
	before, shown := m.shown[t.Address], map[string]labels.Labels{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			for suffix, v := range samples(family.GetType(), metric) {
				l := t.labels(name+suffix.name, append(metric.GetLabel(), suffix.labels()...)...)
				shown[l.String()] = l
				m.memory.append(l, now, v)
			}
		}
	}
	for key, l := range before {
		if _, still := shown[key]; !still {
			m.memory.append(l, now, math.Float64frombits(value.StaleNaN))
		}
	}
	m.shown[t.Address] = shown
}

// labels of a series of the target.
func (t Process) labels(name string, pairs ...*dto.LabelPair) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	b.Set(model.MetricNameLabel, name).Set("job", t.Job).Set("instance", t.Address)
	for _, p := range pairs {
		b.Set(p.GetName(), p.GetValue())
	}
	return b.Labels()
}

func read(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, answer.Body)
		return nil, fmt.Errorf("scrape %s: status %d", url, answer.StatusCode)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(answer.Body)
}

// suffix distinguishes the series of a histogram.
type suffix struct{ name, le string }

func (s suffix) labels() []*dto.LabelPair {
	if s.le == "" {
		return nil
	}
	return []*dto.LabelPair{{Name: new("le"), Value: &s.le}}
}

// samples returns the series of a metric. Summaries have only sum and count.
func samples(kind dto.MetricType, m *dto.Metric) map[suffix]float64 {
	switch kind {
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		all := map[suffix]float64{{name: "_sum"}: h.GetSampleSum(), {name: "_count"}: float64(h.GetSampleCount())}
		for _, b := range h.GetBucket() {
			all[suffix{"_bucket", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)}] = float64(b.GetCumulativeCount())
		}
		return all
	case dto.MetricType_SUMMARY:
		s := m.GetSummary()
		return map[suffix]float64{{name: "_sum"}: s.GetSampleSum(), {name: "_count"}: float64(s.GetSampleCount())}
	case dto.MetricType_COUNTER:
		return map[suffix]float64{{}: m.GetCounter().GetValue()}
	case dto.MetricType_GAUGE:
		return map[suffix]float64{{}: m.GetGauge().GetValue()}
	default:
		return map[suffix]float64{{}: m.GetUntyped().GetValue()}
	}
}
