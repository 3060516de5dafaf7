package manifests_test

import (
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
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
