package curlctl_test

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The pipeline", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	// filled adds three wants, two timers and a failure.
	filled := func(ctx context.Context) {
		GinkgoHelper()
		w.timed(ctx, cm(1), "https://a.example.com/page?token=secret", &v1.Due{Cause: v1.Cause_CAUSE_REFRESH},
			50*time.Minute+40*time.Second, func(w *v1.Want) { w.Refresh = durationpb.New(10 * time.Minute) })
		b := w.timed(ctx, cm(2), "https://b.example.com/", &v1.Due{Cause: v1.Cause_CAUSE_RETRY, Attempts: 3},
			40*time.Minute+40*time.Second)
		w.want(ctx, pipeline.Key{Namespace: "shop", Name: "prices", Key: "k"}, "https://c.example.com/")
		w.fail(ctx, b, v1.FailureClass_FAILURE_CLASS_TIMEOUT)
		w.backlog(ctx, 3)
	}

	It("shows wanted keys", func(ctx SpecContext) {
		Expect(w.run(ctx, "wants").err).To(HaveSuffix("No keys are wanted.\n"))
		filled(ctx)
		golden("wants", w.ok(ctx, "wants"))
		Expect(w.ok(ctx, "wants", "-n", "shop", "-o", "name")).To(Equal("key/shop/prices/k\n"))
		Expect(w.ok(ctx, "wants", "-o", "json")).NotTo(ContainSubstring("secret"))
	})

	It("skips unreadable messages with a hint", func(ctx SpecContext) {
		filled(ctx)
		for _, subject := range []string{cm(0).WantSubject(), "curl.want.shop.pri%ces.k"} {
			Expect(w.js.Publish(ctx, subject, []byte("garbage"))).Error().NotTo(HaveOccurred())
		}
		r := w.run(ctx, "wants", "-o", "name")
		Expect(r.code).To(BeZero())
		Expect(strings.Fields(r.out)).To(ConsistOf("key/default/cm-001/my.data", "key/default/cm-002/my.data",
			"key/shop/prices/k"))
		Expect(r.err).To(MatchRegexp("(?m)^Skipped 2 unreadable messages, the first: .*malformed.*\n$"))
		Expect(w.run(ctx, "refetch", "--all").out).To(Equal("Requested 3 fetches.\n"))
		GinkgoT().Setenv("CURLMETHAT_NATS_URL", w.server.URL())
		Expect(runAs(ctx, "curlctl", time.Now, "__complete", "wants", "--name", "").out).To(ContainSubstring("prices\n"))

		r = w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("wants +bad +2 messages unreadable To fix it: .*restart the watcher"))
	})

	It("is shown at a glance", func(ctx SpecContext) {
		filled(ctx)
		golden("status", w.ok(ctx, "status"))
		var view struct {
			Now       map[string]int
			Blocked   string
			Timers    struct{ Pending int }
			Consumers []struct{ Backlog int }
		}
		Expect(json.Unmarshal([]byte(w.ok(ctx, "status", "-o", "json")), &view)).To(Succeed())
		Expect(view.Now).To(Equal(map[string]int{"ok": 1, "pending": 2}))
		Expect(view.Timers.Pending).To(Equal(2))
		Expect(view.Consumers[0].Backlog).To(Equal(3))
		w.want(ctx, cm(3), "https://d.example.com/")
		w.forget(ctx, cm(3))
		Expect(w.ok(ctx, "status")).To(ContainSubstring(" of 3 keys pending"), "a tombstone wants nothing")
		Expect(w.js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		r := w.run(ctx, "status")
		Expect(r.code).To(Equal(5))
		Expect(r.err).To(ContainSubstring("curlctl setup"))
	})

	It("pauses and resumes without loss", func(ctx SpecContext) {
		site := newOrigin()
		site.up.Store(true)
		w.fetch()
		Expect(w.ok(ctx, "pause")).To(ContainSubstring("paused until `curlctl resume`"))
		w.ok(ctx, "setup") // must not end the pause
		Expect(w.ok(ctx, "status")).To(ContainSubstring("paused until `curlctl resume`"))
		w.want(ctx, cm(1), site.URL)
		w.want(ctx, cm(2), site.URL)
		Consistently(site.gets.Load).WithTimeout(300 * time.Millisecond).Should(BeZero())
		Expect(w.ok(ctx, "resume")).To(ContainSubstring("2 requests waiting"))
		Eventually(func() uint64 { return w.lastSequences()[1] }).Should(BeEquivalentTo(2))
		Expect(w.ok(ctx, "pause", "--for=1h")).To(ContainSubstring("for 1h"))
		Expect(w.ok(ctx, "status")).To(ContainSubstring("resumes in 39m"))
		Expect(w.ok(ctx, "pause", "--for=2d")).To(ContainSubstring("for 2d"))
		Expect(w.run(ctx, "pause", "--for=2x").err).To(ContainSubstring(`"2x" is not a duration such as 10m, 1h30m or 2d`))
		w.ok(ctx, "resume")
		Expect(w.ok(ctx, "resume")).To(Equal("Fetching was not paused.\n"))
		Eventually(func() string { return w.ok(ctx, "status") }).
			Should(ContainSubstring("stopped: results wait and no writer takes them"))
	})

	It("refetches on demand", func(ctx SpecContext) {
		site := newOrigin()
		site.up.Store(true)
		w.fetch()
		for i := range 3 {
			w.want(ctx, cm(i), site.URL+"/"+cm(i).Name)
		}
		Eventually(site.gets.Load).Should(BeEquivalentTo(3))
		Expect(w.ok(ctx, "refetch", "default/cm-001")).To(Equal("Requested 1 fetch.\n"))
		Eventually(site.gets.Load).Should(BeEquivalentTo(4))
		Expect(w.ok(ctx, "refetch", "--all", "-n", "default", "--rate=0")).To(Equal("Requested 3 fetches.\n"))
		Eventually(site.gets.Load).Should(BeEquivalentTo(7))
		Expect(w.run(ctx, "refetch", "default/none").code).To(Equal(5))
		Expect(w.ok(ctx, "refetch", "--url="+site.URL+"/cm-001")).To(Equal("Requested 1 fetch.\n"))
		Expect(w.ok(ctx, "refetch", "--url="+site.URL)).To(Equal("Requested 3 fetches.\n"))
		Expect(w.ok(ctx, "refetch", "--host=localhost", "-n=default", "--rate=20/s")).To(Equal("Requested 3 fetches.\n"))
		Expect(w.ok(ctx, "refetch", "default/cm-002", "--host=localhost")).To(Equal("Requested 1 fetch.\n"))
		Expect(w.run(ctx, "refetch", "--url="+site.URL[:len(site.URL)-1]).code).To(Equal(5), "not a port")
		Expect(w.run(ctx, "refetch", "--host=other.example.com").code).To(Equal(5))
		Expect(w.run(ctx, "refetch", "--url="+site.URL+"/?token=a").code).To(Equal(2))
		Expect(w.run(ctx, "refetch").code).To(Equal(2))
		Expect(w.run(ctx, "refetch", "none").code).To(Equal(2))
	})

	It("purges failures", func(ctx SpecContext) {
		filled(ctx)
		a, _ := w.want(ctx, cm(1), "https://a.example.com/")
		w.fail(ctx, a, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		Expect(w.run(ctx, "failures", "purge").code).To(Equal(2))
		Expect(w.run(ctx, "failures", "purge", "--all").code).To(Equal(8))
		Expect(w.failed(ctx)).To(Equal(2))
		Expect(w.ok(ctx, "failures", "purge", "--host=b.example.com", "--yes")).To(Equal("Removed 1 failure.\n"))
		Expect(w.ok(ctx, "failures", "purge", "--since=1m", "--yes")).To(HavePrefix("No failures match."))
		Expect(w.ok(ctx, "failures", "purge", "--since=1h", "--yes")).To(Equal("Removed 1 failure.\n"))
		Expect(w.failed(ctx)).To(BeZero())
	})

	It("is set up, compared and examined", func(ctx SpecContext) {
		Expect(w.ok(ctx, "setup")).To(ContainSubstring("are up to date."))
		Expect(w.js.DeleteStream(ctx, pipeline.DeadLetters)).To(Succeed())
		r := w.run(ctx, "setup", "--dry-run")
		Expect(r.code).To(Equal(7))
		Expect(r.out).To(ContainSubstring("stream CURL_FAILURES does not exist"))
		r = w.run(ctx, "doctor")
		Expect(r.code).To(Equal(7))
		Expect(flat(r.out)).To(MatchRegexp("streams +bad +stream CURL_FAILURES does not exist " +
			"To fix it: run `curlctl setup`"))
		Expect(r.out).To(MatchRegexp("consumer fetcher +bad +no fetcher reads from it"))
		Expect(w.ok(ctx, "setup")).To(ContainSubstring("Updated streams and consumers."))
		var report string
		Eventually(func() string { report = w.run(ctx, "doctor").out; return report }).
			Should(ContainSubstring("responds within"), "a busy machine is slow")
		golden("doctor", report)
	})

	It("has limits that setup can raise without reporting a difference afterwards", func(ctx SpecContext) {
		w.ok(ctx, "setup", "--max-results-bytes=5368709120", "--max-failures-bytes=2147483648", "--failures-max-age=30d")
		Expect(w.ok(ctx, "setup", "--dry-run")).To(ContainSubstring("are up to date."))
		Expect(flat(w.run(ctx, "doctor").out)).To(MatchRegexp("streams +ok"))
		Expect(w.ok(ctx, "setup")).To(ContainSubstring("are up to date."))
		results := suitetest.Must(w.js.Stream(ctx, pipeline.Results))
		Expect(results.CachedInfo().Config.MaxBytes).To(BeEquivalentTo(5 << 30))
	})
})
