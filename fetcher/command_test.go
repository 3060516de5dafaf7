package fetcher_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/process"
)

// execute runs a command line and returns its output and error.
func execute(args ...string) (string, error) {
	cmd := fetcher.Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

var _ = Describe("The command line", func() {
	It("reports an invalid flag in one sentence with its name", func() {
		for _, mistake := range []string{
			"concurrency=0", "concurrency=100000", "concurrency=many", "per-host=0",
			"namespace-share=1.5", "max-body=0", "trusted-keys=/dev/null",
			"max-redirects=-1", "timeout=1m", "tls-timeout=0s", "header-timeout=-1s",
			"dial-timeout=0s", "max-attempts=0", "max-deliver=0", "retry-base=0s",
			"retry-max=1ms", "max-retry-after=0s", "recheck=0s", "min-refresh=0s",
			"refresh-jitter=0.5", "namespace-result-bytes=-1",
			"namespace-dead-letters=-1", "allow-cidr=everything", "deny-cidr=10.0.0.0/99",
			"allow-host=a b", "allow-port=70000",
		} {
			flag, _, _ := strings.Cut(mistake, "=")
			_, err := execute("--" + mistake)
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

	It("takes no arguments", func() {
		_, err := execute("https://example.com")
		Expect(err).To(HaveOccurred())
	})
})

var _ = Describe("fetcher check", func() {
	code := func(err error) int {
		if exit, ok := errors.AsType[process.ExitError](err); ok {
			Expect(exit.Silent).To(BeTrue(), "the verdict is printed already")
			return exit.Code
		}
		Expect(err).NotTo(HaveOccurred())
		return 0
	}
	file := func(content string) string {
		GinkgoHelper()
		path := filepath.Join(GinkgoT().TempDir(), "file.yaml")
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		return path
	}

	DescribeTable("prints the verdict with its reason, and exits accordingly:",
		func(want int, says string, args ...string) {
			out, err := execute(append([]string{"check"}, args...)...)
			Expect(code(err)).To(Equal(want))
			Expect(out).To(ContainSubstring(says))
		},
		Entry("loopback", 1, "denied: its address is not public", "http://127.0.0.1/"),
		Entry("allowed loopback", 0, "allowed", "http://127.0.0.1:9999/", "--allow-cidr=127.0.0.0/8"),
		Entry("scheme", 1, "denied: the scheme must be http or https", "ftp://example.com"),
		Entry("port", 1, "denied: the port is not allowed", "http://192.0.2.1:22"),
		Entry("garbage", 1, "denied: the url contains an invisible character", "not correct"),
		Entry("like an annotation: a port with zeros", 0, "allowed", "http://127.0.0.1:08080/", "--allow-cidr=127.0.0.0/8"),
		Entry("like an annotation: a fragment", 0, "allowed", "http://127.0.0.1/#part", "--allow-cidr=127.0.0.0/8"),
		Entry("like an annotation: no scheme", 0, "allowed", "127.0.0.1:8443/x", "--allow-cidr=127.0.0.0/8"),
	)

	It("applies the policy of the namespace", func() {
		policy := file("policies:\n- namespaces: [trusted]\n  allow-cidr: [127.0.0.0/8]\n")
		for namespace, want := range map[string]int{"trusted": 0, "other": 1} {
			_, err := execute("check", "http://127.0.0.1/", "--policy="+policy, "--namespace="+namespace)
			Expect(code(err)).To(Equal(want), namespace)
		}
	})

	It("says which credential is sent", func() {
		headers := file("- {host: 127.0.0.1, namespaces: [team-a], headers: {X-A: s3cr3t}}\n")
		for namespace, says := range map[string]string{
			"team-a": "\nthe credential of entry 1 of the header file is sent\n",
			"team-b": "\nno credential is configured for this URL and namespace\n",
		} {
			out := suitetest.Must(execute("check", "127.0.0.1", "--allow-cidr=127.0.0.0/8", "--header-file="+headers,
				"--namespace="+namespace))
			Expect(out).To(HaveSuffix(says))
			Expect(out).NotTo(ContainSubstring("s3cr3t"))
		}
	})

	It("refuses an unreadable policy", func() {
		_, err := execute("check", "http://127.0.0.1/", "--policy=/does/not/exist")
		Expect(err).To(MatchError(ContainSubstring("/does/not/exist")))
	})
})
