package curlctl_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// configured runs a broker with a configuration, and creates the streams as its user app.
func configured(ctx context.Context, text string) *world {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true, ConfigFile: config})
	w := &world{server: s}
	w.use(ctx, natstest.Connect(GinkgoTB(), s, nats.UserInfo("app", "p")))
	return w.as("app")
}

// contexts creates contexts of the nats command until the spec ends.
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
	It("finds overdue timers", func(ctx SpecContext) {
		w := newWorld(ctx)
		for i, fires := range []time.Duration{10 * time.Minute, time.Hour} { // the clock of the spec is 20 minutes ahead
			w.timed(ctx, cm(i), "https://a.example.com/", &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}, fires)
		}
		r := w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("timers +bad +1 timer of 2 overdue To fix it: restart the leader"))
		Expect(w.ok(ctx, "timers")).To(ContainSubstring("overdue"))
	})

	It("finds a replica that is behind or offline", func(ctx SpecContext) {
		servers, addresses := natstest.Cluster(GinkgoTB())
		nc := suitetest.Must(nats.Connect(addresses, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))) // the default one prints
		DeferCleanup(nc.Close)
		js := suitetest.Must(jetstream.New(nc))
		Eventually(func() (int64, error) { return pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: 3}) }).
			WithTimeout(time.Minute).ShouldNot(BeZero()) // the servers may have to elect leaders again
		c := &world{server: servers[0], js: js, connect: []string{"--nats-url", addresses}}
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +ok +CURL_REQUESTS has 3 replicas"))
		servers[2].Stop()
		Eventually(func() string { return flat(c.run(ctx, "doctor").out) }).
			Should(MatchRegexp("replicas +bad +the replica of CURL_REQUESTS on natstest-2 is behind or offline " +
				"To fix it: check that server"))
		Expect(c.run(ctx, "doctor").code).To(Equal(7))
	})

	It("finds a paused or missing consumer", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.ok(ctx, "pause")
		Expect(flat(w.run(ctx, "doctor").out)).
			To(MatchRegexp("consumer fetcher +warning +paused, 0 messages waiting To fix it: run `curlctl resume`"))
		Expect(w.js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("streams +bad +.*fetcher.* To fix it: run `curlctl setup`"))
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
