package manifests_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// Files of the project, relative to this folder.
const (
	deploy     = "../../"
	metrics    = deploy + "docs/metrics.md"
	dashboards = deploy + "chart/files/dashboards/curl-me-that.json"
	rules      = deploy + "chart/files/rules/*.yaml"
	production = deploy + "chart/files/rules/production/*.yaml"
	ruleTests  = deploy + "prometheus/tests/*.yaml"
	runbooks   = deploy + "docs/runbooks.md"
)

// runbookURL is the address of the runbooks.
const runbookURL = "https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/runbooks.md#"

// metric has the labels of a metric, with their values. Without values, any value is possible.
type metric struct {
	histogram bool
	labels    map[string][]string
}

// catalogue has all metrics by name.
type catalogue map[string]metric

// everywhere are labels that any series may have.
var everywhere = []string{"__name__", "namespace", "job", "instance"}

// row matches a metric in the list.
var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram)(?:, ([^|]*))? \\|")

// allMetrics returns the metrics of the list, those of every process and of Prometheus, and the recorded series.
func allMetrics(all alerting) catalogue {
	GinkgoHelper()
	c := catalogue{
		"ALERTS": {labels: map[string][]string{"alertname": nil, "alertstate": {"pending", "firing"}, "severity": nil}},
	}
	for _, name := range []string{
		"up", "go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
	} {
		c[name] = metric{}
	}
	for _, cells := range row.FindAllStringSubmatch(string(suitetest.Must(os.ReadFile(metrics))), -1) {
		c[cells[1]] = metric{cells[2] == "histogram", labelsOf(cells[3])}
	}
	Expect(len(c)).To(BeNumerically(">", 60), "metrics in the list")
	for _, r := range all.records {
		c[r.Record] = metric{}
	}
	return c
}

// labelsOf returns the labels in a cell with their values, or without values if the cell describes them in words.
func labelsOf(cell string) map[string][]string {
	all := map[string][]string{}
	for part := range strings.SplitSeq(cell, "<br>") {
		name, values, found := strings.Cut(strings.TrimPrefix(part, "`"), "`: ")
		if !found {
			continue
		}
		all[name] = nil
		if listed, is := strings.CutPrefix(values, "`"); is {
			all[name] = strings.Split(strings.TrimSuffix(listed, "`"), "`, `")
		}
	}
	return all
}

// parsed returns a query of PromQL, in which it replaces the variables of Grafana.
func parsed(query string) parser.Expr {
	GinkgoHelper()
	query = strings.NewReplacer("$__rate_interval", "1m", "$__range", "30m", "$namespace", ".*").Replace(query)
	return suitetest.Must(parser.NewParser(parser.Options{}).ParseExpr(query))
}

// shouldHave expects that a query uses only metrics, labels and values of the catalogue.
func (c catalogue) shouldHave(query, where string) {
	GinkgoHelper()
	for _, selector := range parser.ExtractSelectors(parsed(query)) {
		series := ""
		for _, m := range selector {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				series = m.Value
			}
		}
		found, known := c[series]
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if name, cut := strings.CutSuffix(series, suffix); cut && c[name].histogram {
				found, known = c[name], true
			}
		}
		Expect(known).To(BeTrue(), "%s: unknown metric %q", where, series)
		for _, m := range selector {
			if slices.Contains(everywhere, m.Name) {
				continue
			}
			Expect(found.labels).To(HaveKey(m.Name), "%s: labels of %s", where, series)
			if values := found.labels[m.Name]; len(values) > 0 {
				Expect(slices.ContainsFunc(values, m.Matches)).To(BeTrue(), "%s: %s of %v in %s", where, m, values, series)
			}
		}
	}
}

// alerting has the recording and the alerting rules.
type alerting struct{ records, alerts []rulefmt.Rule }

// allRules reads all rules, as strictly as Prometheus.
func allRules() (all alerting) {
	GinkgoHelper()
	for _, pattern := range []string{rules, production} {
		paths := suitetest.Must(filepath.Glob(pattern))
		Expect(paths).NotTo(BeEmpty(), pattern)
		for _, path := range paths {
			groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, parser.NewParser(parser.Options{}),
				slog.New(slog.DiscardHandler))
			Expect(errs).To(BeEmpty())
			for _, g := range groups.Groups {
				for _, r := range g.Rules {
					if r.Alert != "" {
						all.alerts = append(all.alerts, r)
					} else {
						all.records = append(all.records, r)
					}
				}
			}
		}
	}
	return all
}

// dashboard is the part of a Grafana dashboard that specs check.
type dashboard struct {
	Panels      []panel
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

type panel struct {
	Type, Title, Description string
	Targets                  []struct {
		Expr, RefID string
		Datasource  struct{ UID string }
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
	GridPos     struct{ H, W, X, Y int }
}

func readDashboard() (d dashboard) {
	GinkgoHelper()
	Expect(json.Unmarshal(suitetest.Must(os.ReadFile(dashboards)), &d)).To(Succeed())
	return d
}

// drawn returns the panels that show data.
func (d dashboard) drawn() []panel {
	return slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" || p.Type == "text" })
}

var _ = Describe("The dashboard", func() {
	var d dashboard
	BeforeEach(func() { d = readDashboard() })

	It("queries only existing metrics", func() {
		c := allMetrics(allRules())
		for _, p := range d.drawn() {
			Expect(p.Targets).NotTo(BeEmpty(), p.Title)
			for _, t := range p.Targets {
				c.shouldHave(t.Expr, p.Title)
			}
		}
		for _, a := range d.Annotations.List {
			if a.Expr != "" {
				c.shouldHave(a.Expr, a.Name)
			}
		}
	})

	It("describes each panel, with a unit, from the selected data source", func() {
		seen := map[string]bool{}
		for _, p := range d.drawn() {
			Expect(p.Title).NotTo(BeEmpty())
			Expect(seen[p.Type+p.Title]).To(BeFalse(), "two panels %q", p.Title)
			seen[p.Type+p.Title] = true
			Expect(p.Description).To(HaveSuffix("."), p.Title)
			Expect(p.FieldConfig.Defaults.Unit).NotTo(BeEmpty(), p.Title)
			refs := map[string]bool{}
			for _, t := range p.Targets {
				Expect(refs[t.RefID]).To(BeFalse(), p.Title)
				refs[t.RefID] = true
				Expect(t.Datasource.UID).To(Equal("${datasource}"), p.Title)
			}
		}
	})

	It("derives the interval of each rate from the scrapes or the time range", func() {
		for _, p := range d.drawn() {
			for _, t := range p.Targets {
				for _, function := range []string{"rate(", "increase("} {
					if strings.Contains(t.Expr, function) {
						Expect(t.Expr).To(Or(ContainSubstring("[$__rate_interval]"), ContainSubstring("[$__range]")), p.Title)
					}
				}
			}
		}
	})

	It("has no overlapping panels", func() {
		taken := map[string]string{}
		for _, p := range d.Panels {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				Expect(x).To(BeNumerically("<", 24), p.Title)
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					cell := fmt.Sprint(x, " ", y)
					Expect(taken[cell]).To(BeEmpty(), "%q and %q overlap", taken[cell], p.Title)
					taken[cell] = p.Title
				}
			}
		}
	})
})

var _ = Describe("The alerting rules", func() {
	It("query only existing metrics", func() {
		all := allRules()
		c := allMetrics(all)
		for _, r := range slices.Concat(all.records, all.alerts) {
			c.shouldHave(r.Expr, r.Alert+r.Record)
		}
	})

	It("give each alert a severity, a summary and a runbook", func() {
		names := map[string]bool{}
		for _, a := range allRules().alerts {
			Expect(names[a.Alert]).To(BeFalse(), "two alerts %s", a.Alert)
			names[a.Alert] = true
			Expect(a.Alert).To(HavePrefix("CurlMeThat"))
			Expect(a.Labels["severity"]).To(BeElementOf("critical", "warning", "info"), a.Alert)
			Expect(a.Annotations["summary"]).NotTo(BeEmpty(), a.Alert)
			Expect(a.Annotations["summary"]).NotTo(HaveSuffix("."), a.Alert)
			Expect(a.Annotations["description"]).To(HaveSuffix("."), a.Alert)
			Expect(a.For).NotTo(BeZero(), "%s fires at the first bad sample", a.Alert)
		}
	})

	It("pass promtool's tests, which fire each alert", func() {
		var tests strings.Builder
		for _, p := range suitetest.Must(filepath.Glob(ruleTests)) {
			tests.Write(suitetest.Must(os.ReadFile(p)))
		}
		for _, a := range allRules().alerts {
			Expect(tests.String()).To(Or(
				ContainSubstring(`{labels: 'ALERTS{alertname="%s", alertstate="firing"`, a.Alert),
				MatchRegexp(`alertname: %s\n +eval_time: \S+\n +exp_alerts:\n +- exp_labels`, a.Alert),
			), a.Alert)
		}
	})
})

// panelName matches the title of a panel in a runbook.
var panelName = regexp.MustCompile(`panel\s\*\*(.+?)\*\*`)

var _ = Describe("The runbooks", func() {
	It("have a section for every alert, and for nothing else", func() {
		text := string(suitetest.Must(os.ReadFile(runbooks)))
		sections := map[string]string{}
		for section := range strings.SplitSeq(text, "\n## ") {
			heading, _, _ := strings.Cut(section, "\n")
			sections[strings.ToLower(heading)] = section
		}
		linked := map[string]bool{}
		for _, a := range allRules().alerts {
			anchor, is := strings.CutPrefix(a.Annotations["runbook_url"], runbookURL)
			Expect(is).To(BeTrue(), a.Alert)
			Expect(sections[anchor]).To(And(ContainSubstring(a.Alert), ContainSubstring("\n**Check:**"),
				ContainSubstring("\n**Fix")), a.Alert)
			linked[anchor] = true
		}
		for heading := range sections {
			if strings.HasPrefix(heading, "curlmethat") {
				Expect(linked).To(HaveKey(heading), "no alert leads to this section")
			}
		}
	})

	It("name existing panels", func() {
		text := string(suitetest.Must(os.ReadFile(runbooks)))
		for _, panel := range panelName.FindAllStringSubmatch(text, -1) {
			Expect(readDashboard().Panels).To(ContainElement(HaveField("Title", panel[1])))
		}
	})
})
