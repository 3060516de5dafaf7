// Package monitor evaluates the queries of the dashboard and the alerts against running services. It uses the
// engine of Prometheus as a library, so nothing needs to be installed.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// maxSamples and queryTimeout limit one query.
const (
	maxSamples   = 10_000_000
	queryTimeout = 30 * time.Second
)

// Monitor scrapes processes and answers queries about them, like Prometheus. It is safe for concurrent use,
// except for concurrent calls of Scrape.
type Monitor struct {
	targets []Process
	rules   *Rules
	engine  *promql.Engine
	memory  *memory
	shown   map[string]map[string]labels.Labels // series of the last scrape, by target
}

// New returns a monitor without samples.
func New(rules *Rules, targets ...Process) *Monitor {
	return &Monitor{
		targets: targets, rules: rules, memory: &memory{series: map[string]promql.Series{}},
		shown:  map[string]map[string]labels.Labels{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: queryTimeout}),
	}
}

// Run scrapes at an interval until ctx ends.
func (m *Monitor) Run(ctx context.Context, interval time.Duration) error {
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		return false, m.Scrape(ctx)
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}

// Scrape reads the metrics of all targets and evaluates the recording rules. A target that does not
// respond counts as down, without an error.
func (m *Monitor) Scrape(ctx context.Context) error {
	now := time.Now()
	for _, t := range m.targets {
		m.scrape(ctx, t, now)
	}
	for _, r := range m.rules.Records {
		values, err := m.ask(ctx, Query(r.Expr), now)
		if err != nil {
			return fmt.Errorf("record %s: %w", r.Record, err)
		}
		for _, v := range values {
			m.memory.append(labels.NewBuilder(v.Metric).Set(model.MetricNameLabel, r.Record).Labels(), now, v.F)
		}
	}
	return nil
}

// Ask evaluates a query at the current time.
func (m *Monitor) Ask(ctx context.Context, q Query) (promql.Vector, error) {
	return m.ask(ctx, q, time.Now())
}

func (m *Monitor) ask(ctx context.Context, q Query, at time.Time) (promql.Vector, error) {
	query, err := m.engine.NewInstantQuery(ctx, m.memory.queryable(), nil, q.promQL(), at)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", q, err)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("evaluate %s: %w", q, result.Err)
	}
	vector, err := result.Vector()
	if err != nil && ctx.Err() == nil {
		return nil, errors.Join(fmt.Errorf("evaluate %s", q), err)
	}
	return vector, nil
}

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

// labels returns the labels of a series, with its target's.
func (t Process) labels(metric model.Metric) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	b.Set("job", t.Job).Set("instance", t.Address)
	for name, text := range metric {
		b.Set(string(name), string(text))
	}
	return b.Labels()
}

// memory keeps all samples. It is safe for concurrent use.
type memory struct {
	mu     sync.Mutex
	series map[string]promql.Series // by labels
}

// append adds a sample, which must be newer than the others in its series.
func (m *memory) append(l labels.Labels, at time.Time, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := l.String()
	points := append(m.series[key].Floats, promql.FPoint{T: at.UnixMilli(), F: value})
	m.series[key] = promql.Series{Metric: l, Floats: points}
}

// queryable returns the samples as storage for the engine, which picks the time range itself.
func (m *memory) queryable() storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return m.selected(matchers)
		},
	}}
}

func (m *memory) selected(matchers []*labels.Matcher) *seriesSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := &seriesSet{}
	for _, key := range slices.Sorted(maps.Keys(m.series)) {
		s := m.series[key]
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			set.series = append(set.series, promql.NewStorageSeries(s))
		}
	}
	return set
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool {
	s.next++
	return s.next <= len(s.series)
}
func (s *seriesSet) At() storage.Series                { return s.series[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// Query is a PromQL expression. It may contain variables of Grafana.
type Query string

// Values of Grafana's variables: four scrapes of 15 s, and the default time range of the dashboard.
const (
	rateInterval = "1m"
	shownRange   = "30m"
)

// promQL returns the query for all namespaces, with the variables replaced.
func (q Query) promQL() string {
	return strings.NewReplacer("$__rate_interval", rateInterval, "$__range", shownRange, "$namespace", ".*").
		Replace(string(q))
}

// Check returns an error if the query uses a metric, label or value that the catalogue does not have.
func (q Query) Check(c *Catalogue) error {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.promQL())
	if err != nil {
		return fmt.Errorf("parse %s: %w", q, err)
	}
	for _, matchers := range parser.ExtractSelectors(expr) {
		if err := c.check(matchers); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// check looks up the metric, labels and values of a selector.
func (c *Catalogue) check(selector []*labels.Matcher) error {
	shown := ""
	for _, matcher := range selector {
		if matcher.Name == model.MetricNameLabel && matcher.Type == labels.MatchEqual {
			shown = matcher.Value
		}
	}
	name := c.metric(shown)
	m, known := c.Metrics[name]
	if !known {
		return fmt.Errorf("unknown metric %q", shown)
	}
	for _, matcher := range selector {
		if slices.Contains(c.Everywhere, matcher.Name) {
			continue
		}
		values, known := m.Labels[matcher.Name]
		if !known {
			return fmt.Errorf("%s has no label %q", name, matcher.Name)
		}
		if len(values) > 0 && !slices.ContainsFunc(values, matcher.Matches) {
			return fmt.Errorf("%s never matches %s, its values are %v", name, matcher, values)
		}
	}
	return nil
}

// metric returns the name of the metric, without a histogram suffix.
func (c *Catalogue) metric(series string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && c.Metrics[name].Kind == "histogram" {
			return name
		}
	}
	return series
}
