package fetcher_test

import (
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/fetcher"
)

var _ = Describe("The pages next to the code", func() {
	pages := func() string {
		var all strings.Builder
		docs := "../deploy/docs/"
		for _, name := range []string{"README.md", docs + "egress.md", docs + "credentials.md", docs + "rules.md"} {
			page := must(os.ReadFile(name))
			all.Write(page)
		}
		return all.String()
	}

	It("have every flag", func() {
		cfg := fetcher.DefaultConfig()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.BindFlags(flags)
		text := pages()
		flags.VisitAll(func(f *pflag.Flag) { Expect(text).To(ContainSubstring("--" + f.Name)) })
	})
})
