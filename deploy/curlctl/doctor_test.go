package curlctl_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
)

// configured runs a broker with a configuration, in which the user app of
// account APP has the streams.
func configured(ctx context.Context, text string) *world {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	s := pipelinetest.Broker(GinkgoTB(), natstest.Options{Listen: true, ConfigFile: config})
	w := &world{server: s}
	w.use(ctx, pipelinetest.Connect(GinkgoTB(), s, nats.UserInfo("app", "p")))
	return w.as("app")
}

// contexts makes contexts of the nats command, by name, which are used until
// the end of the spec.
func contexts(texts map[string]string) {
	GinkgoHelper()
	home := GinkgoT().TempDir()
	GinkgoT().Setenv("XDG_CONFIG_HOME", home)
	Expect(os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700)).To(Succeed())
	for name, text := range texts {
		Expect(os.WriteFile(filepath.Join(home, "nats", "context", name+".json"), []byte(text), 0o600)).To(Succeed())
	}
}

var _ = Describe("doctor", func() {
	// accounts is a configuration with a system account.
	accounts := func(jetstream string) string {
		return `jetstream { ` + jetstream + ` }
			accounts {
				SYS { users: [ { user: sys, password: p } ] }
				APP { jetstream: enabled, users: [ { user: app, password: p } ] }
			}
			system_account: SYS`
	}

	It("finds that there is no room for the record of operators, without which they can do nothing", func(ctx SpecContext) {
		w := newWorld(ctx)
		Expect(w.run(ctx, "doctor").out).To(ContainSubstring("there is room for the record"))
		w.ok(ctx, "setup", "--max-audit-bytes", "20000")
		Eventually(ctx, func() string { return w.run(ctx, "pause").err }).
			Should(And(ContainSubstring("nothing was done, since it cannot be recorded"), ContainSubstring("curlctl setup --max-audit-bytes")))
		r := w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(ContainSubstring("the record of what operators do is full"))
		w.ok(ctx, "setup", "--max-audit-bytes", "1000000")
		w.ok(ctx, "pause")
	})

	It("finds out by the system account how many keys the memory of the server carries", func(ctx SpecContext) {
		before := debug.SetMemoryLimit(-1)
		DeferCleanup(func() { debug.SetMemoryLimit(before) })
		w := configured(ctx, accounts(""))
		contexts(map[string]string{"sys": `{"url":"` + w.server.URL() + `","user":"sys","password":"p"}`})
		memory := func(flags ...string) string { return flat(w.run(ctx, append([]string{"doctor"}, flags...)...).out) }

		Expect(memory()).To(MatchRegexp(`memory +unknown +0 keys need up to 64 MiB of NATS`))
		Expect(memory("--system-context=sys")).To(MatchRegexp(`memory +unknown .* and NATS a GOMEMLIMIT`))
		debug.SetMemoryLimit(364 << 20) // the server runs in this process
		Expect(memory("--system-context=sys")).To(MatchRegexp(`memory +ok +that of NATS carries 100,\d{3} keys`))
		debug.SetMemoryLimit(52430 << 10)
		for n := range 5 {
			w.want(ctx, pipeline.Key{Namespace: "ns", Name: fmt.Sprint("cm-", n), Key: "k"}, "https://a.example")
		}
		Expect(memory("--system-context=sys")).To(MatchRegexp(`memory +warning +that of NATS carries 0 keys, and there are 5: .*expectedKeys`))
	})

	DescribeTable("reports by the system account how soon the server writes to disk", func(ctx SpecContext, jetstream, says string) {
		w := configured(ctx, accounts(jetstream))
		contexts(map[string]string{
			"sys":   `{"url":"` + w.server.URL() + `","user":"sys","password":"p"}`,
			"app":   `{"url":"` + w.server.URL() + `","user":"app","password":"p"}`,
			"wrong": `{"url":"` + w.server.URL() + `","user":"sys","password":"wrong"}`,
		})
		Expect(flat(w.run(ctx, "doctor", "--system-context=sys").out)).To(MatchRegexp(says))
		Expect(flat(w.run(ctx, "doctor", "--system-context=app").out)).To(MatchRegexp("sync_interval +unknown .* give a context of the system account"))
		Expect(flat(w.run(ctx, "doctor", "--system-context=wrong").out)).To(MatchRegexp("sync_interval +unknown +cannot connect to NATS by context wrong"))
		Expect(flat(w.run(ctx, "doctor", "--system-context=none").out)).To(MatchRegexp(`sync_interval +unknown .*unknown context "none"`))
	},
		Entry("at once", "sync_interval: always", "sync_interval +ok +every write is on disk"),
		Entry("some time later", "sync_interval: 10s", "sync_interval +warning +writes reach the disk after up to 10s: .* set jetstream.sync_interval to always"),
		Entry("as by default", "", "sync_interval +warning +writes reach the disk after up to 2m0s"),
	)

	It("finds timers that should have fired", func(ctx SpecContext) {
		w := newWorld(ctx)
		for i, fires := range []time.Duration{10 * time.Minute, time.Hour} { // the clock of the spec is 20 minutes ahead
			want, seq := w.want(ctx, cm(i), "https://a.example.com/")
			due := &v1.Due{Want: want, WantSequence: seq, Cause: v1.Cause_CAUSE_REFRESH}
			Expect(w.client.PublishTimer(ctx, due, time.Now().Add(fires))).To(Succeed())
		}
		r := w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("timers +bad +1 timer of 2 should have fired To mend it: restart the leader"))
		Expect(w.ok(ctx, "timers")).To(ContainSubstring("overdue"))
	})

	It("finds a replica that is behind or offline", func(ctx SpecContext) {
		c := clustered(ctx)
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).Should(MatchRegexp("replicas +ok +CURL_REQUESTS has 3 replicas"))
		c.servers[2].Stop()
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +bad +replica of CURL_REQUESTS on natstest-2 is behind or offline To mend it: look after that server"))
		Expect(c.run(ctx, "doctor").code).To(Equal(7))
	})

	It("finds a consumer that is paused, or that is gone", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.ok(ctx, "pause")
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("consumer fetcher +warning +it is paused, 0 messages waiting To mend it: run `curlctl resume`"))
		Expect(w.js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("streams +bad +.*fetcher.* To mend it: run `curlctl setup`"))
	})
})

var _ = Describe("A JetStream domain", func() {
	It("takes the JetStream domain and the prefix of the API from the context", func(ctx SpecContext) {
		w := configured(ctx, `jetstream { domain: hub }
			accounts {
				APP { jetstream: enabled, users: [ { user: app, password: p } ] }
			}`)
		want, _ := w.want(ctx, cm(1), "https://a.example.com/")
		w.fail(ctx, want, v1.FailureClass_FAILURE_CLASS_TIMEOUT, "a.example.com")
		base := `{"url":"` + w.server.URL() + `","user":"app","password":"p"`
		contexts(map[string]string{
			"domain": base + `,"jetstream_domain":"hub"}`,
			"prefix": base + `,"jetstream_api_prefix":"$JS.hub.API"}`,
			"wrong":  base + `,"jetstream_domain":"nowhere"}`,
		})
		run := func(args ...string) result { return runAs(ctx, "curlctl", time.Now, args...) }
		for _, name := range []string{"domain", "prefix"} {
			for _, args := range [][]string{{"failures"}, {"failures", "show", "1"}, {"wants"}, {"status"}, {"replay", "1"}, {"pause"}, {"resume"}, {"setup", "--dry-run"}} {
				r := run(append(args, "--context="+name)...)
				Expect(r.code).To(BeZero(), "%v by %s: %s", args, name, r.err)
			}
			Expect(flat(run("doctor", "--context="+name).out)).To(MatchRegexp("permissions +ok"))
		}
		By("asking no other server when that does not answer")
		r := run("failures", "--context=wrong")
		Expect(r.code).NotTo(BeZero())
		Expect(strings.Count(r.err, "\n")).To(Equal(1), r.err)
	})
})
