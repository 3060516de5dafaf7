package monitor

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// Rules has recording and alerting rules in the order of evaluation.
type Rules struct {
	// Records are the recording rules.
	Records []rulefmt.Rule
	// Alerts are the alerting rules.
	Alerts []rulefmt.Rule
}

// ReadRules reads all files that match a pattern, as strictly as Prometheus.
func ReadRules(patterns ...string) (*Rules, error) {
	all := &Rules{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			return nil, errors.Join(fmt.Errorf("no rules in %s", pattern), err)
		}
		for _, path := range paths {
			groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, parser.NewParser(parser.Options{}),
				slog.New(slog.DiscardHandler))
			if err := errors.Join(errs...); err != nil {
				return nil, fmt.Errorf("read rules: %w", err)
			}
			all.add(groups)
		}
	}
	return all, nil
}

func (r *Rules) add(groups *rulefmt.RuleGroups) {
	for _, g := range groups.Groups {
		for _, rule := range g.Rules {
			if rule.Alert != "" {
				r.Alerts = append(r.Alerts, rule)
			} else {
				r.Records = append(r.Records, rule)
			}
		}
	}
}

// Alert returns the alert of that name.
func (r *Rules) Alert(name string) (rulefmt.Rule, error) {
	for _, a := range r.Alerts {
		if a.Alert == name {
			return a, nil
		}
	}
	return rulefmt.Rule{}, fmt.Errorf("unknown alert %q", name)
}

// Runbook returns the section of a page that an alert links to, from its heading to the next one.
func Runbook(page string, alert rulefmt.Rule) (string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", fmt.Errorf("read the runbooks: %w", err)
	}
	_, anchor, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
	for section := range strings.SplitSeq(string(text), "\n## ") {
		if heading, _, _ := strings.Cut(section, "\n"); strings.ToLower(heading) == anchor {
			return section, nil
		}
	}
	return "", fmt.Errorf("%s has no heading for #%s", page, anchor)
}

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

// Dashboard is the part of a Grafana dashboard that specs check.
type Dashboard struct {
	SchemaVersion int     `json:"schemaVersion"`
	UID           string  `json:"uid"`
	Panels        []Panel `json:"panels"`
	Annotations   struct {
		List []struct {
			Name       string     `json:"name"`
			Expr       Query      `json:"expr"`
			Datasource Datasource `json:"datasource"`
		} `json:"list"`
	} `json:"annotations"`
}

// Panel of a dashboard.
type Panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  Datasource `json:"datasource"`
	Targets     []Target   `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	GridPos struct{ H, W, X, Y int } `json:"gridPos"`
}

// Target is a query of a panel.
type Target struct {
	Expr         Query      `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
}

// Datasource of a query.
type Datasource struct {
	UID string `json:"uid"`
}

// ReadDashboard reads a file.
func ReadDashboard(path string) (*Dashboard, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	d := &Dashboard{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("read the dashboard %s: %w", path, err)
	}
	return d, nil
}

// Shows returns the panels that show data, in their order.
func (d *Dashboard) Shows() []Panel {
	var shown []Panel
	for _, p := range d.Panels {
		if p.Type != "row" && p.Type != "text" {
			shown = append(shown, p)
		}
	}
	return shown
}

// Panel returns the first panel with that type and title.
func (d *Dashboard) Panel(kind, title string) (Panel, error) {
	for _, p := range d.Panels {
		if p.Title == title && p.Type == kind {
			return p, nil
		}
	}
	return Panel{}, fmt.Errorf("the dashboard has no %s %q", kind, title)
}
