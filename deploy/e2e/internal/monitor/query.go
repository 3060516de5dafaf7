package monitor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

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
