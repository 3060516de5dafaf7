// Package suitetest runs all Ginkgo suites in the same way, runs services in the process of a test, reads metrics, and
// serves DNS.
package suitetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// patience is how long a spec waits for an event on a busy machine.
const patience = time.Minute

// Run runs the specs of a package.
func Run(t *testing.T, suite string) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(patience)
	ginkgo.RunSpecs(t, suite)
}

// ExpectNoLeaks fails the suite unless all goroutines of its specs end. Call it first in
// BeforeSuite, so that it runs after all other cleanup.
func ExpectNoLeaks() {
	// Ignore the goroutines of Ginkgo.
	before := goleak.IgnoreCurrent()
	ginkgo.DeferCleanup(func() {
		gomega.Eventually(func() error { return goleak.Find(before) }).Should(gomega.Succeed())
	})
}

// Must returns the value of a call that must succeed.
func Must[T any](value T, err error) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}

// Sure is Must for tests without Ginkgo, and for values outside of tests.
func Sure[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Metrics returns the value of each series by name and labels, as in name{label="value"}; for a
// histogram, the number of observations.
func Metrics(from prometheus.Gatherer) (map[string]float64, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	series := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			series[f.GetName()+labels(m)] = value(m)
		}
	}
	return series, nil
}

// MetricValue returns the sum of all series whose names begin with prefix, which may include labels. It is an error if
// there are none, so that no spec takes a wrong name for 0.
func MetricValue(from prometheus.Gatherer, prefix string) (sum float64, err error) {
	series, err := Metrics(from)
	found := false
	for name, v := range series {
		if name == prefix || strings.HasPrefix(name, prefix+"{") || strings.Contains(prefix, "{") &&
			strings.HasPrefix(name, prefix) {
			sum, found = sum+v, true
		}
	}
	if err == nil && !found {
		err = fmt.Errorf("there is no metric %s", prefix)
	}
	return sum, err
}

// MetricProblems returns violations of the conventions of promlint and of ours: every gathered series
// must be defined, with the labels and values of its definition, and every histogram needs native
// buckets, too.
func MetricProblems(from prometheus.Gatherer, definitions []metric.Definition) ([]string, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	found, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		return nil, fmt.Errorf("lint metrics: %w", err)
	}
	var problems []string
	for _, p := range found {
		problems = append(problems, p.Metric+": "+p.Text)
	}
	for _, f := range families {
		i := slices.IndexFunc(definitions, func(d metric.Definition) bool { return d.Name == f.GetName() })
		if i < 0 {
			problems = append(problems, f.GetName()+": is not defined")
			continue
		}
		problems = append(problems, compare(f, definitions[i])...)
	}
	return problems, nil
}

// UnnamedMetrics returns the names of definitions that have no series.
func UnnamedMetrics(definitions []metric.Definition, series []string) (names []string) {
	for _, d := range definitions {
		if !slices.ContainsFunc(series, func(s string) bool { name, _, _ := strings.Cut(s, "{"); return name == d.Name }) {
			names = append(names, d.Name)
		}
	}
	return names
}

func compare(f *dto.MetricFamily, d metric.Definition) (problems []string) {
	if kind := strings.ToLower(f.GetType().String()); kind != string(d.Kind) {
		problems = append(problems, fmt.Sprintf("%s: is a %s, not a %s", d.Name, kind, d.Kind))
	}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			i := slices.IndexFunc(d.Labels, func(known metric.Label) bool { return known.Name == l.GetName() })
			if i < 0 || d.Labels[i].Open == "" && !slices.Contains(d.Labels[i].Values, l.GetValue()) {
				problems = append(problems, fmt.Sprintf("%s: label %s=%q is not defined", d.Name, l.GetName(), l.GetValue()))
			}
		}
		if h := m.GetHistogram(); h != nil && (h.Schema == nil || len(h.GetBucket()) == 0) {
			problems = append(problems, d.Name+": has no native or no classic buckets")
		}
	}
	return problems
}

func labels(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	pairs := make([]string, len(m.GetLabel()))
	for i, l := range m.GetLabel() {
		pairs[i] = fmt.Sprintf("%s=%q", l.GetName(), l.GetValue())
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func value(m *dto.Metric) float64 {
	if h := m.GetHistogram(); h != nil {
		return float64(h.GetSampleCount())
	}
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}
