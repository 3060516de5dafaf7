package monitor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/monitor"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestMonitor(t *testing.T) { suitetest.Run(t, "Dashboard, alerts and runbooks") }

// Files of the project, relative to this folder.
const (
	deploy     = "../../../"
	metrics    = deploy + "docs/metrics.md"
	dashboards = deploy + "chart/files/dashboards/curl-me-that.json"
	rules      = deploy + "chart/files/rules/*.yaml"
	production = deploy + "chart/files/rules/production/*.yaml"
	ruleTests  = deploy + "prometheus/tests/*.yaml"
	runbooks   = deploy + "docs/runbooks.md"
)

// runbookURL is the address of the runbooks.
const runbookURL = "https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/runbooks.md#"

// catalogue returns the metrics and recorded series that a query may use.
func catalogue(all *monitor.Rules) *monitor.Catalogue {
	GinkgoHelper()
	c := suitetest.Must(monitor.NewCatalogue(metrics))
	Expect(len(c.Metrics)).To(BeNumerically(">", 60), "metrics in the list")
	for _, r := range all.Records {
		c.Metrics[r.Record] = monitor.Metric{Kind: "gauge"}
	}
	return c
}

func allRules() *monitor.Rules {
	GinkgoHelper()
	return suitetest.Must(monitor.ReadRules(rules, production))
}

var _ = Describe("The dashboard", func() {
	var d *monitor.Dashboard
	BeforeEach(func() {
		d = suitetest.Must(monitor.ReadDashboard(dashboards))
	})

	It("queries only existing metrics", func() {
		c := catalogue(allRules())
		for _, p := range d.Shows() {
			Expect(p.Targets).NotTo(BeEmpty(), p.Title)
			for _, t := range p.Targets {
				Expect(t.Expr.Check(c)).To(Succeed(), p.Title)
			}
		}
		for _, a := range d.Annotations.List {
			if a.Expr != "" {
				Expect(a.Expr.Check(c)).To(Succeed(), a.Name)
			}
		}
	})

	It("describes each panel, with a unit, from the selected data source", func() {
		seen := map[string]bool{}
		for _, p := range d.Shows() {
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
		for _, p := range d.Shows() {
			for _, t := range p.Targets {
				for _, function := range []string{"rate(", "increase("} {
					if strings.Contains(string(t.Expr), function) {
						Expect(string(t.Expr)).To(Or(ContainSubstring("[$__rate_interval]"), ContainSubstring("[$__range]")), p.Title)
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
		c := catalogue(all)
		for _, r := range slices.Concat(all.Records, all.Alerts) {
			Expect(monitor.Query(r.Expr).Check(c)).To(Succeed(), r.Alert+r.Record)
		}
	})

	It("give each alert a severity, a summary and a runbook", func() {
		names := map[string]bool{}
		for _, a := range allRules().Alerts {
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
		for _, a := range allRules().Alerts {
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
		linked := map[string]bool{}
		for _, a := range allRules().Alerts {
			Expect(a.Annotations["runbook_url"]).To(HavePrefix(runbookURL), a.Alert)
			section := suitetest.Must(monitor.Runbook(runbooks, a))
			Expect(section).To(ContainSubstring(a.Alert))
			Expect(section).To(ContainSubstring("\n**Check:**"))
			Expect(section).To(ContainSubstring("\n**Fix"))
			linked["\n## "+strings.Split(section, "\n")[0]] = true
		}
		for _, heading := range regexp.MustCompile(`\n## CurlMeThat\w+`).FindAllString(text, -1) {
			Expect(linked).To(HaveKey(heading), "no alert leads to this section")
		}
	})

	It("name existing panels", func() {
		text := string(suitetest.Must(os.ReadFile(runbooks)))
		d := suitetest.Must(monitor.ReadDashboard(dashboards))
		for _, panel := range panelName.FindAllStringSubmatch(text, -1) {
			Expect(d.Panels).To(ContainElement(HaveField("Title", panel[1])))
		}
	})
})
