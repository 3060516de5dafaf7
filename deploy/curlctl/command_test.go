package curlctl_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
)

var _ = Describe("The program", func() {
	It("names itself as a plugin when kubectl runs it", func(ctx SpecContext) {
		Expect(runAs(ctx, "/usr/bin/kubectl-curl_me_that", time.Now, "--help").out).
			To(ContainSubstring("kubectl curl-me-that [command]"))
		Expect(runAs(ctx, "/usr/bin/curlctl", time.Now, "--help").out).To(ContainSubstring("curlctl [command]"))
	})

	It("never prints the password of an address", func(ctx SpecContext) {
		const wrong = "nats://me:s3cr%t@nats:42x2"
		contexts(map[string]string{"wrong": `{"url":"` + wrong + `"}`})
		for _, flag := range []string{
			"--nats-url=" + wrong, "--nats-url=nats://me:s3/cr@nats", "--nats-url=nats://me:s3,cr@nats:1", "--context=wrong",
		} {
			r := runAs(ctx, "curlctl", time.Now, "status", flag)
			Expect(r.code).To(Equal(3))
			Expect(r.err).To(And(ContainSubstring("an address of a server is invalid"), Not(ContainSubstring("s3"))))
		}
	})

	It("completes names from NATS", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.failing(ctx, cm(1), "https://a.example.com/")
		GinkgoT().Setenv("CURLMETHAT_NATS_URL", w.server.URL())
		for _, c := range []struct {
			args []string
			says string
		}{
			{[]string{"failures", "show", ""}, "1\tTimeout default/cm-001/my.data\n"},
			{[]string{"replay", ""}, "1\tTimeout"},
			{[]string{"replay", "--host", ""}, "a.example.com\n"},
			{[]string{"failures", "--name", ""}, "cm-001\n"},
			{[]string{"failures", "--reason", ""}, "Timeout\n"},
			{[]string{"status", ""}, "default/cm-001\n"},
			{[]string{"wants", "-n", ""}, "default\n"},
			{[]string{"status", "default/cm-001", "-n", ""}, "default\n"},
			{[]string{"wants", "-o", ""}, "wide\n"},
		} {
			Expect(runAs(ctx, "curlctl", time.Now, append([]string{"__complete"}, c.args...)...).out).
				To(ContainSubstring(c.says), "%v", c.args)
		}
		for _, args := range [][]string{{"status", "default/cm-001", ""}, {"failures", "show", "1", ""}} {
			Expect(runAs(ctx, "curlctl", time.Now, append([]string{"__complete"}, args...)...).out).To(HavePrefix(":"))
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			Expect(runAs(ctx, "curlctl", time.Now, "completion", shell).out).To(ContainSubstring("curlctl"))
		}
		w.server.Stop()
		Expect(runAs(ctx, "curlctl", time.Now, "__complete", "replay", "").out).To(HavePrefix(":"))
	})

	It("uses contexts of the nats command", func(ctx SpecContext) {
		w := guarded(ctx)
		contexts(map[string]string{
			"ops": `{"url":"` + w.server.URL() + `","user":"viewer","password":"p"}`,
			"bad": `{"url":"` + w.server.URL() + `","user":"viewer","password":"wrong"}`,
		})
		run := func(args ...string) result { return runAs(ctx, "curlctl", time.Now, args...) }
		Expect(run("failures", "--context=ops").code).To(BeZero())
		bad := run("failures", "--context=bad")
		Expect(bad.code).To(Equal(3))
		Expect(bad.err).NotTo(ContainSubstring("wrong"), "the password")
		Expect(run("failures", "--context=none").err).To(ContainSubstring(`unknown context "none"`))
		selected := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "nats", "context.txt")
		Expect(os.WriteFile(selected, []byte("ops"), 0o600)).To(Succeed())
		Expect(run("status").code).To(BeZero())
		Expect(run("__complete", "failures", "--context", "").out).To(HavePrefix("bad\nops\n"))

		By("trying all servers of --nats-url")
		both := "nats://127.0.0.1:1, " + w.server.URL()
		Expect(run("failures", "--context=ops", "--nats-url="+both).code).To(BeZero())

		By("finding the file that the demo and docker compose write beside the kubeconfig")
		contexts(nil)
		beside := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(beside, broker.BesideKubeconfig),
			[]byte(`{"url":"`+w.server.URL()+`","user":"viewer","password":"p"}`), 0o600)).To(Succeed())
		Expect(run("failures", "--kubeconfig="+filepath.Join(beside, "kubeconfig")).code).To(BeZero())
		Expect(os.WriteFile(filepath.Join(beside, "nats.crt"), []byte("no certificate"), 0o600)).To(Succeed())
		Expect(run("failures", "--kubeconfig="+filepath.Join(beside, "kubeconfig")).err).To(ContainSubstring("certificate"))
	})
})

var _ = Describe("A JetStream domain", func() {
	It("is used if the context names it, as is an API prefix", func(ctx SpecContext) {
		w := configured(ctx, `jetstream { domain: hub }
			accounts {
				APP { jetstream: enabled, users: [ { user: app, password: p } ] }
			}`)
		w.failing(ctx, cm(1), "https://a.example.com/")
		base := `{"url":"` + w.server.URL() + `","user":"app","password":"p"`
		contexts(map[string]string{
			"domain": base + `,"jetstream_domain":"hub"}`,
			"prefix": base + `,"jetstream_api_prefix":"$JS.hub.API"}`,
			"wrong":  base + `,"jetstream_domain":"nowhere"}`,
		})
		run := func(args ...string) result { return runAs(ctx, "curlctl", time.Now, args...) }
		for _, name := range []string{"domain", "prefix"} {
			for _, args := range [][]string{
				{"failures"},
				{"failures", "show", "1"},
				{"wants"},
				{"status"},
				{"replay", "1"},
				{"pause"},
				{"resume"},
				{"setup", "--dry-run"},
			} {
				r := run(append(args, "--context="+name)...)
				Expect(r.code).To(BeZero(), "%v by %s: %s", args, name, r.err)
			}
			Expect(flat(run("doctor", "--context="+name).out)).To(MatchRegexp("permissions +ok"))
		}
		By("trying no other server if the selected one does not respond")
		r := run("failures", "--context=wrong")
		Expect(r.code).NotTo(BeZero())
		Expect(strings.Count(r.err, "\n")).To(Equal(1), r.err)
	})
})
