package fetcher_test

import (
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
)

var _ = Describe("The command line", func() {
	It("reports an invalid flag in one sentence with its name", func(ctx SpecContext) {
		for _, mistake := range []string{
			"concurrency=0", "concurrency=100000", "concurrency=many", "per-host=0",
			"namespace-share=1.5", "max-body=0", "trusted-keys=/dev/null",
			"timeout=1m", "tls-timeout=0s", "header-timeout=-1s",
			"dial-timeout=0s", "max-attempts=0", "retry-base=0s",
			"retry-max=1ms", "max-retry-after=0s", "recheck=0s", "min-refresh=0s",
			"refresh-jitter=0.5", "namespace-result-bytes=-1",
			"namespace-dead-letters=-1", "allow-cidr=everything", "deny-cidr=10.0.0.0/99",
			"allow-host=a b", "allow-port=70000",
		} {
			flag, _, _ := strings.Cut(mistake, "=")
			cmd := fetcher.Command()
			cmd.SetArgs([]string{"--" + mistake})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(ctx)
			Expect(err).To(MatchError(ContainSubstring("--" + flag)))
			Expect(err.Error()).NotTo(ContainSubstring("\n"))
		}
	})

	It("has every flag on a page", func() {
		var pages strings.Builder
		const docs = "../deploy/docs/"
		for _, name := range []string{"README.md", docs + "egress.md", docs + "credentials.md", docs + "rules.md"} {
			pages.Write(suitetest.Must(os.ReadFile(name)))
		}
		cfg := fetcher.DefaultConfig()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.BindFlags(flags)
		flags.VisitAll(func(f *pflag.Flag) { Expect(pages.String()).To(ContainSubstring("--" + f.Name)) })
	})
})
