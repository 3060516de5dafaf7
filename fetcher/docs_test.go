package fetcher_test

import (
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
)

var _ = Describe("The pages beside the code", func() {
	pages := func() string {
		var all strings.Builder
		for _, name := range []string{"README.md", "EGRESS.md"} {
			page, err := os.ReadFile(name)
			Expect(err).NotTo(HaveOccurred())
			all.Write(page)
		}
		return all.String()
	}

	It("name every flag", func() {
		cfg := fetcher.DefaultConfig()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.BindFlags(flags)
		text := pages()
		flags.VisitAll(func(f *pflag.Flag) { Expect(text).To(ContainSubstring("--" + f.Name)) })
	})

	It("name every metric", func() {
		registry := prometheus.NewRegistry()
		metrics, err := engine.NewMetrics(registry)
		Expect(err).NotTo(HaveOccurred())
		descriptions := make(chan *prometheus.Desc, 100)
		metrics.Describe(descriptions)
		close(descriptions)
		text := pages()
		n := 0
		for d := range descriptions {
			name := strings.TrimPrefix(strings.Split(d.String(), `"`)[1], "curlmethat_fetcher_")
			Expect(text).To(ContainSubstring("`" + name + "`"))
			n++
		}
		Expect(n).To(BeNumerically(">", 8))
	})
})
