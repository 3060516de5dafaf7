// Package monitor evaluates the queries of the dashboard and the alerts against running services. It uses the
// engine of Prometheus as a library, so nothing needs to be installed.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"k8s.io/apimachinery/pkg/util/wait"
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
