package manifests_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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

// runbookURL is the address of the runbooks.
const runbookURL = "https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/runbooks.md#"

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
		names := panelName.FindAllStringSubmatch(string(suitetest.Must(os.ReadFile(runbooks))), -1)
		Expect(names).NotTo(BeEmpty())
		for _, name := range names {
			Expect(readDashboard().Panels).To(ContainElement(HaveField("Title", name[1])))
		}
	})
})
