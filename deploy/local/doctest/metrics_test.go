package doctest_test

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher"
	"github.com/kv8s/curl-me-that/watcher/keeper"
	"github.com/kv8s/curl-me-that/writer"
)

// text returns the content of a file.
func text(file string) []byte {
	GinkgoHelper()
	return suitetest.Must(os.ReadFile(file))
}

//go:embed testdata/metrics.md.tmpl
var metricsTemplate string

const metricsPage = "deploy/docs/metrics.md"

var _ = It("The page about metrics lists all metrics of the code", func() {
	var page strings.Builder
	Expect(write(&page, sections())).To(Succeed())
	if os.Getenv("UPDATE_METRICS") != "" {
		Expect(os.WriteFile(filepath.Join(root, metricsPage), []byte(page.String()), 0o600)).To(Succeed())
	}
	Expect(page.String()).To(Equal(string(text(filepath.Join(root, metricsPage)))), "run make generate")
})

// section has the metrics of one component.
type section struct {
	Title, Where string
	Metrics      []metric.Definition
}

// sections returns all metrics.
func sections() []section {
	own, pipeline := watcher.Metrics()
	return withCommon([]section{
		{"Watcher", "Port 8081.", append(process.Metrics("watcher"), own...)},
		{"Pipeline", "Port 8081 of the leading watcher, read from NATS every 15 s. While NATS does not respond, " +
			"only `curlmethat_pipeline_up` exists, with value 0.", pipeline},
		{"Fetcher", "Port 8082.", append(process.Metrics("fetcher"), fetcher.Metrics()...)},
		{"Writer", "Port 8083.", append(process.Metrics("writer"), writer.Metrics()...)},
		{"Keeper", "Port 8085.", append(process.MetricsWithoutNATS("keeper"), keeper.Metrics()...)},
		{"Hooks", "Port 8086 of `curlctl hooks`.", curlctl.HookMetrics()},
	})
}

// withCommon moves metrics that several services have to a section of their own, and merges their label
// values.
func withCommon(all []section) []section {
	sections := map[string]int{}
	for _, s := range all {
		for _, d := range s.Metrics {
			sections[d.Name]++
		}
	}
	var common []metric.Definition
	for i := range all {
		all[i].Metrics = slices.DeleteFunc(all[i].Metrics, func(d metric.Definition) bool {
			if sections[d.Name] == 1 {
				return false
			}
			at := slices.IndexFunc(common, func(c metric.Definition) bool { return c.Name == d.Name })
			if at < 0 {
				common = append(common, d)
				return true
			}
			for l := range d.Labels {
				values := slices.Concat(common[at].Labels[l].Values, d.Labels[l].Values)
				slices.Sort(values)
				common[at].Labels[l].Values = slices.Compact(values)
			}
			return true
		})
	}
	return append(all, section{"Common", "Served by each service that has them.", common})
}

// write writes the page. The metrics of each section are sorted by name.
func write(to io.Writer, all []section) error {
	for _, s := range all {
		slices.SortStableFunc(s.Metrics, func(a, b metric.Definition) int { return strings.Compare(a.Name, b.Name) })
	}
	t, err := template.New("page").Funcs(template.FuncMap{"labels": labels, "text": escaped}).Parse(metricsTemplate)
	if err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	if err := t.Execute(to, all); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// labels describes the labels of a metric, with their values.
func labels(d metric.Definition) string {
	parts := make([]string, len(d.Labels))
	for i, l := range d.Labels {
		values := l.Open
		if values == "" {
			values = "`" + strings.Join(l.Values, "`, `") + "`"
		}
		parts[i] = "`" + l.Name + "`: " + values
	}
	return strings.Join(parts, "<br>")
}

// escaped escapes a text for a Markdown table.
func escaped(s string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "|", "\\|").Replace(s)
}
