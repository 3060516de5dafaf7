package apply

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// metrics of applying results. Labels come from closed sets.
type metrics struct {
	results *prometheus.CounterVec
	patches *prometheus.CounterVec
	reads   *prometheus.CounterVec
	events  *prometheus.CounterVec
	batch   prometheus.Histogram
	seconds prometheus.Histogram
	behind  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	latency := []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := &metrics{
		results: counter("curlmethat_writer_results_total", "Results settled, by what became of them.", "verdict"),
		patches: counter("curlmethat_writer_patches_total", "Patches sent, by their outcome.", "outcome"),
		reads:   counter("curlmethat_writer_reads_total", "Reads of ConfigMaps, by how much was read.", "kind"),
		events:  counter("curlmethat_writer_events_total", "Events said, by reason.", "reason"),
		batch:   histogram("curlmethat_writer_batch_messages", "Messages applied together.", []float64{1, 2, 4, 8, 16, 32, 64, 128}),
		seconds: histogram("curlmethat_writer_apply_seconds", "Time to apply a batch, API calls included.", latency),
		behind:  histogram("curlmethat_writer_behind_seconds", "Time from when an outcome was known until it was settled.", latency),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.results, m.patches, m.reads, m.events, m.batch, m.seconds, m.behind} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	for _, v := range judge.Verdicts() {
		m.results.WithLabelValues(v.String())
	}
	for _, f := range faults() {
		m.patches.WithLabelValues(f.String())
	}
	return m, nil
}
