// Package metric creates the metrics of a service in a uniform way.
//
// Names have the form curlmethat_<service>_<noun>_<unit>, with _total for counters, in base units.
// All values of a label exist from the start, so that rates begin at zero. No label contains a URL,
// host, namespace or object, because tenants choose these. Histograms have classic and native
// buckets.
//
// Each metric is recorded as a Definition, for the page about all metrics.
package metric

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Project is the prefix of all our own metrics.
const Project = "curlmethat"

// Kind of a metric, as in Prometheus.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label distinguishes the series of a metric.
type Label struct {
	// Name of the label.
	Name string
	// Values of the label; for an open label, only the initial ones.
	Values []string
	// Open describes values that others define, such as HTTP status codes; empty if Values are
	// complete.
	Open string
}

// Labeled returns a label with the given values.
func Labeled[S ~string](name string, values ...S) Label {
	l := Label{Name: name, Values: make([]string, len(values))}
	for i, v := range values {
		l.Values[i] = string(v)
	}
	return l
}

// Definition describes a metric.
type Definition struct {
	// Name is the full name.
	Name string
	// Kind of the metric.
	Kind Kind
	// Help is one sentence for operators.
	Help string
	// Labels in the order of label values.
	Labels []Label
}

const (
	// nativeFactor is the growth factor of native buckets.
	nativeFactor = 1.1
	// nativeBuckets is the maximum number of native buckets per series. Beyond it they are reset or
	// widened, at most once per nativeReset.
	nativeBuckets = 160
	nativeReset   = time.Hour
)

// Set creates and registers metrics, and panics if two have one name. It is not safe for concurrent
// use.
type Set struct {
	prefix      string
	registry    prometheus.Registerer
	definitions []Definition
}

// New returns an empty set for the metrics of a service or another component.
func New(registry prometheus.Registerer, service string) *Set {
	return &Set{prefix: Project + "_" + service + "_", registry: registry}
}

// Standard returns an empty set for metrics whose names are not ours.
func Standard(registry prometheus.Registerer) *Set { return &Set{registry: registry} }

// Definitions returns the created metrics in order.
func (s *Set) Definitions() []Definition { return slices.Clone(s.definitions) }

// Counter creates a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: s.prefix + name, Help: help})
	s.add(c, Counter, name, help)
	return c
}

// CounterFunc creates a counter that is read on each scrape.
func (s *Set) CounterFunc(name, help string, value func() float64) {
	s.add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: s.prefix + name, Help: help}, value), Counter, name, help)
}

// Counters creates a counter with a label.
func (s *Set) Counters(name, help string, label Label) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.prefix + name, Help: help}, []string{label.Name})
	preset(c.WithLabelValues, label)
	s.add(c, Counter, name, help, label)
	return c
}

// Gauge creates a gauge.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: s.prefix + name, Help: help})
	s.add(g, Gauge, name, help)
	return g
}

// Gauges creates a gauge with a label.
func (s *Set) Gauges(name, help string, label Label) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: s.prefix + name, Help: help}, []string{label.Name})
	preset(g.WithLabelValues, label)
	s.add(g, Gauge, name, help, label)
	return g
}

// GaugeFunc creates a gauge that is read on each scrape.
func (s *Set) GaugeFunc(name, help string, value func() float64) {
	s.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: s.prefix + name, Help: help}, value), Gauge, name, help)
}

// BoolFunc is GaugeFunc for a value that is 1 or 0.
func (s *Set) BoolFunc(name, help string, value func() bool) {
	s.GaugeFunc(name, help, func() float64 { return Bool(value()) })
}

// Bool returns 1 or 0.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Families creates gauges with at most one label that share one read on each scrape. It returns a map by label value
// for each family, in the same order. Without a label the key is empty. A missing value has no series.
func (s *Set) Families(read func() []map[string]float64, families ...Definition) {
	c := &gauges{families: families, read: read}
	for _, f := range families {
		f.Name, f.Kind = s.prefix+f.Name, Gauge
		var names []string
		for _, l := range f.Labels {
			names = append(names, l.Name)
		}
		c.descs = append(c.descs, prometheus.NewDesc(f.Name, f.Help, names, nil))
		s.definitions = append(s.definitions, f)
	}
	s.registry.MustRegister(c)
}

// Histogram creates a histogram with these classic buckets.
func (s *Set) Histogram(name, help string, bounds []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(s.histogram(name, help, bounds))
	s.add(h, Histogram, name, help)
	return h
}

// Histograms creates a histogram with a label.
func (s *Set) Histograms(name, help string, bounds []float64, label Label) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(s.histogram(name, help, bounds), []string{label.Name})
	preset(h.WithLabelValues, label)
	s.add(h, Histogram, name, help, label)
	return h
}

// preset creates a series for each value of a label, so that it exists before its first change.
func preset[M any](with func(...string) M, label Label) {
	for _, v := range label.Values {
		with(v)
	}
}

// Add registers a metric that was created elsewhere.
func (s *Set) Add(c prometheus.Collector, d Definition) {
	s.definitions = append(s.definitions, d)
	s.registry.MustRegister(c)
}

func (s *Set) histogram(name, help string, bounds []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: s.prefix + name, Help: help, Buckets: bounds,
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  nativeBuckets,
		NativeHistogramMinResetDuration: nativeReset,
	}
}

func (s *Set) add(c prometheus.Collector, kind Kind, name, help string, labels ...Label) {
	s.Add(c, Definition{Name: s.prefix + name, Kind: kind, Help: help, Labels: labels})
}

// gauges collects gauges that are read on each scrape.
type gauges struct {
	families []Definition
	descs    []*prometheus.Desc
	read     func() []map[string]float64
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(descriptions chan<- *prometheus.Desc) {
	for _, desc := range g.descs {
		descriptions <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(metrics chan<- prometheus.Metric) {
	for i, read := range g.read() {
		for _, v := range g.families[i].values(read) {
			n, ok := read[v]
			switch {
			case !ok:
			case v == "":
				metrics <- prometheus.MustNewConstMetric(g.descs[i], prometheus.GaugeValue, n)
			default:
				metrics <- prometheus.MustNewConstMetric(g.descs[i], prometheus.GaugeValue, n, v)
			}
		}
	}
}

// values returns the label values of a gauge. An open label has any value that was read.
func (d Definition) values(read map[string]float64) []string {
	switch {
	case len(d.Labels) == 0:
		return []string{""}
	case d.Labels[0].Open != "":
		return slices.Sorted(maps.Keys(read))
	}
	return d.Labels[0].Values
}
