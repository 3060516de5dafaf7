package monitor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Query is an expression as a dashboard or a rule has it.
type Query string

// Values of Grafana's variables: four scrapes of 15 s, and the initial time range of the
// dashboard.
const (
	rateInterval = "1m"
	shownRange   = "30m"
)

// promQL returns the query without variables of Grafana, for all namespaces.
func (q Query) promQL() string {
	return strings.NewReplacer("$__rate_interval", rateInterval, "$__range", shownRange, "$namespace", ".*").
		Replace(string(q))
}

// parse reads the query.
func (q Query) parse() (parser.Expr, error) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.promQL())
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", q, err)
	}
	return expr, nil
}

// Selectors returns the metrics of the query with their matchers.
func (q Query) Selectors() ([]Selector, error) {
	expr, err := q.parse()
	if err != nil {
		return nil, err
	}
	var found []Selector
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			found = append(found, Selector{Name: v.Name, Matchers: v.LabelMatchers})
		}
		return nil
	})
	return found, nil
}

// Selector is a part of a query that names a metric.
type Selector struct {
	// Name of the metric, or empty if another matcher selects it.
	Name string
	// Matchers of all labels, including the name.
	Matchers []*labels.Matcher
}

// Metric is the name without the suffix that series of histograms have.
func (s Selector) Metric(histograms func(name string) bool) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if name, ok := strings.CutSuffix(s.Name, suffix); ok && histograms(name) {
			return name
		}
	}
	return s.Name
}

// Check returns metrics, labels and values in the query that the catalogue does not have.
func (q Query) Check(c *Catalogue) error {
	selectors, err := q.Selectors()
	if err != nil {
		return err
	}
	for _, s := range selectors {
		if err := s.check(c); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

func (s Selector) check(c *Catalogue) error {
	name := s.Metric(func(name string) bool { return c.Metrics[name].Kind == "histogram" })
	m, known := c.Metrics[name]
	if !known {
		return fmt.Errorf("unknown metric %q", s.Name)
	}
	for _, matcher := range s.Matchers {
		if slices.Contains(c.Everywhere, matcher.Name) {
			continue
		}
		values, known := m.Labels[matcher.Name]
		if !known {
			return fmt.Errorf("%s has no label %q", name, matcher.Name)
		}
		if len(values) > 0 && !slices.ContainsFunc(values, matcher.Matches) {
			return fmt.Errorf("%s never matches %s, but one of %v", name, matcher, values)
		}
	}
	return nil
}
