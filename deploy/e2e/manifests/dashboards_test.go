package manifests_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// dashboard is the part of a Grafana dashboard that specs check.
type dashboard struct {
	Panels      []panel
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

// drawn returns the panels that show data.
func (d dashboard) drawn() []panel {
	return slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" || p.Type == "text" })
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

// panelName matches the title of a panel in a runbook.
var panelName = regexp.MustCompile(`panel\s\*\*(.+?)\*\*`)

// series matches the name of one of our metrics in a query, with the suffix of a histogram.
var series = regexp.MustCompile(`curlmethat_\w+`)

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

	It("explains only values that its metrics have", func() {
		c := allMetrics(allRules())
		explained := regexp.MustCompile(`(?:^|\. )([a-z_]+)(?: and ([a-z_]+))?:`)
		for _, p := range d.drawn() {
			var known []string
			for _, t := range p.Targets {
				for _, m := range series.FindAllString(t.Expr, -1) {
					for name, one := range c {
						if strings.HasPrefix(m, name) {
							known = slices.Concat(append(known, name), slices.Concat(slices.Collect(maps.Values(one.labels))...))
						}
					}
				}
			}
			for _, found := range explained.FindAllStringSubmatch(p.Description, -1) {
				for _, word := range slices.DeleteFunc(found[1:], func(word string) bool { return word == "" }) {
					Expect(known).To(ContainElement(MatchRegexp("(^|_)"+word+"(_|$)")), p.Title)
				}
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
