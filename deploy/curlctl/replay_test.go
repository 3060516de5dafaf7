package curlctl_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

var _ = Describe("replay and refetch", func() {
	var (
		w    *world
		site *origin
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		site = newOrigin()
	})

	// broken publishes n wants, and waits until a real fetcher has given them up.
	broken := func(ctx context.Context, n int) {
		GinkgoHelper()
		for i := range n {
			w.want(ctx, cm(i), site.URL+"/"+cm(i).Name)
		}
		Eventually(ctx, func() int { return w.failed(ctx) }).Should(Equal(n))
	}
	contents := func(ctx context.Context) (names []string) {
		GinkgoHelper()
		stream := suitetest.Must(w.js.Stream(ctx, pipeline.Results))
		info := suitetest.Must(stream.Info(ctx, jetstream.WithSubjectFilter("curl.result.content.>")))
		for subject := range info.State.Subjects {
			_, key, err := pipeline.ParseSubject(subject)
			Expect(err).NotTo(HaveOccurred())
			names = append(names, key.Name)
		}
		return names
	}
	// apply acknowledges all results, like the writer.
	apply := func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			pipeline.Consume(ctx, w.js, pipeline.ConsumeOptions{
				Stream: pipeline.Results, Consumer: pipeline.WriterConsumer, Concurrency: 8,
			}, func(context.Context, *pipeline.Delivery) pipeline.Disposition { return pipeline.Ack() })
		}()
		DeferCleanup(func() { cancel(); <-ended })
	}

	It("fetches wanted keys and waits for the outcome", func(ctx SpecContext) {
		w.fetch()
		broken(ctx, 20)
		w.forget(ctx, cm(3))
		w.want(ctx, cm(4), site.URL+"/another")
		Eventually(ctx, func() int { return w.failed(ctx) }).Should(Equal(21))
		site.up.Store(true)
		apply()

		r := w.run(ctx, "replay", "--host=localhost", "--wait", "--timeout=30s")
		Expect(r.code).To(BeZero(), "%s %s", r.out, r.err)
		golden("replay-wait", sortedLines(r.out))
		Expect(w.failed(ctx)).To(Equal(21), "failures are kept")
	})

	It("ends with exit code 6 at an interrupt while only the writer is not done", func(ctx SpecContext) {
		w.fetch()
		broken(ctx, 1)
		site.up.Store(true)
		interrupted, interrupt := context.WithCancel(ctx)
		defer interrupt()
		Expect(w.js.Conn().Subscribe("$JS.API.CONSUMER.INFO.CURL_RESULTS.writer", func(m *nats.Msg) {
			if strings.HasPrefix(m.Reply, process.InboxPrefix("curlctl")) {
				interrupt()
			}
		})).Error().NotTo(HaveOccurred())
		Expect(w.js.Conn().Flush()).To(Succeed())

		r := w.run(interrupted, "replay", "--all", "--wait", "--timeout=30s")
		Expect(r.out).To(And(ContainSubstring("1 fetched"), ContainSubstring("The writer has not handled all of them yet")))
		Expect(r.err).To(HaveSuffix("curlctl: interrupted\n"))
		Expect(r.code).To(Equal(6))
	})

	It("reports keys that fail again, with both failures", func(ctx SpecContext) {
		w.fetch()
		broken(ctx, 2)
		r := w.run(ctx, "replay", "--all", "--wait", "--timeout=30s")
		Expect(r.code).To(Equal(6), "%s %s", r.out, r.err)
		Expect(r.out).To(ContainSubstring("2 failed again"))
		Expect(r.out).To(
			MatchRegexp(`Failed again: default/cm-001/my.data \(BadStatus 503\), is failure \d\.`))
		Expect(strings.Count(r.out, "Failed again:")).To(Equal(2))

		By("reporting the same counts, although older failures of the keys are selected")
		r = w.run(ctx, "replay", "1", "2", "3", "4", "--wait", "--timeout=30s")
		Expect(r.out).To(And(ContainSubstring("Skipped 2 failures: there is a newer one"),
			ContainSubstring("2 failed again")))
		Expect(strings.Count(r.out, "Failed again:")).To(Equal(2), r.out)
		Eventually(func(g Gomega) {
			var links []uint64
			for f, err := range w.client.DeadLetters(ctx, broker.DeadLetterFilter{}) {
				g.Expect(err).NotTo(HaveOccurred())
				links = append(links, f.Message.GetReplayOf())
			}
			g.Expect(links).To(ConsistOf(BeEquivalentTo(0), BeEquivalentTo(0), BeEquivalentTo(1), BeEquivalentTo(2),
				BeEquivalentTo(3), BeEquivalentTo(4)))
		}).Should(Succeed())

		site.up.Store(true)
		apply()
		r = w.run(ctx, "replay", "--all", "--wait", "--timeout=30s")
		Expect(r.code).To(BeZero(), r.err)
		Expect(r.out).To(And(ContainSubstring("Skipped 4 failures: there is a newer one"), ContainSubstring("2 fetched")))
	})

	It("replays once if it runs twice without a fetcher", func(ctx SpecContext) {
		stop := w.fetch()
		broken(ctx, 5)
		stop()
		site.up.Store(true)
		gets := site.gets.Load()
		r := w.run(ctx, "replay", "--all", "--wait", "--timeout=300ms")
		Expect(r.out).To(And(ContainSubstring("Replayed 5 failures."), ContainSubstring("Outcome: 5 ")))
		Expect(r.err).To(ContainSubstring("Stopped waiting for 5 fetches. Fetching continues."))
		Expect(w.ok(ctx, "replay", "--all")).To(ContainSubstring("Replayed none of 5 failures."))
		w.fetch()
		Eventually(ctx, func() []string { return contents(ctx) }).Should(HaveLen(5))
		Expect(site.gets.Load() - gets).To(BeEquivalentTo(5))
	})

	It("cancels the pending recheck", func(ctx SpecContext) {
		stop := w.fetch()
		broken(ctx, 1)
		stop()
		Expect(w.client.PendingTimer(ctx, cm(0))).Error().NotTo(HaveOccurred())
		w.ok(ctx, "replay", "1")
		Expect(w.client.PendingTimer(ctx, cm(0))).Error().To(MatchError(pipeline.ErrNoMessage))
	})

	It("includes keys between two retries with --all, which have no failure in the record", func(ctx SpecContext) {
		w.timed(ctx, cm(0), site.URL, &v1.Due{Cause: v1.Cause_CAUSE_RETRY, Attempts: 2}, time.Hour)
		w.timed(ctx, cm(1), site.URL, &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}, time.Hour)
		w.failing(ctx, cm(2), site.URL)
		Expect(w.ok(ctx, "replay", "--all")).To(Equal("Replayed 2 failures.\n"))
		Expect(w.client.LastMessage(ctx, pipeline.Requests, cm(0).DueSubject())).Error().NotTo(HaveOccurred())
		Expect(w.client.LastMessage(ctx, pipeline.Requests, cm(1).DueSubject())).Error().To(MatchError(pipeline.ErrNoMessage))
	})

	It("changes nothing in a dry run", func(ctx SpecContext) {
		w.failing(ctx, cm(1), site.URL)
		before := w.lastSequences()
		Expect(w.ok(ctx, "replay", "--all", "--dry-run")).To(Equal("Would replay 1 failure.\n"))
		Expect(w.lastSequences()).To(Equal(before))
	})

	It("asks for confirmation above 100", func(ctx SpecContext) {
		for i := range 101 {
			w.failing(ctx, cm(i), site.URL)
		}
		before := w.lastSequences()
		r := w.run(ctx, "replay", "--all")
		Expect(r.code).To(Equal(8))
		Expect(r.err).To(ContainSubstring("--yes"))
		Expect(w.lastSequences()).To(Equal(before))
		Expect(w.ok(ctx, "replay", "--all", "--yes", "--rate=1000")).To(Equal("Replayed 101 failures.\n"))
	})

	It("fetches wanted keys on demand, even if they have not failed", func(ctx SpecContext) {
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
})

var _ = DescribeTable("An interrupt ends, with an error and exit code 6,", func(spec SpecContext, args ...string) {
	w := newWorld(spec)
	for i := range 3 {
		w.failing(spec, cm(i), "https://a.example.com/")
	}
	before := w.lastSequences()
	ctx, interrupt := context.WithCancel(spec)
	defer interrupt()
	if slices.Contains(args, "--rate=1/m") { // after the first request
		go func() {
			defer GinkgoRecover()
			defer interrupt()
			Eventually(spec, w.lastSequences).ShouldNot(Equal(before))
		}()
	} else {
		interrupt()
	}
	r := w.run(ctx, args...)
	Expect(r.code).To(Equal(6), r.out)
	Expect(r.err).To(HaveSuffix("curlctl: interrupted\n"))
	if slices.Contains(args, "--rate=1/m") {
		Expect(r.err).To(HavePrefix("Stopped after 1 of 3 "))
	}
},
	Entry("a refetch", "refetch", "--all", "--rate=1/m"),
	Entry("a replay", "replay", "--all", "--rate=1/m"),
	Entry("a listing", "failures"),
	Entry("a removal one by one", "failures", "purge", "--since=1h", "--yes"),
)

var _ = It("An interrupt without NATS is not reported as a lost connection", func(spec SpecContext) {
	ctx, interrupt := context.WithCancel(spec)
	interrupt()
	r := runAs(ctx, "curlctl", time.Now, "failing", "--nats-url=nats://127.0.0.1:1", "--kubeconfig="+unreachable("{}"))
	Expect(r.err).To(Equal("curlctl: interrupted\n"))
	Expect(r.code).To(Equal(6))
})

// lastSequences returns the last sequences of the streams.
func (w *world) lastSequences() (all []uint64) {
	GinkgoHelper()
	for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters} {
		all = append(all, natstest.State(GinkgoTB(), w.js, name).LastSeq)
	}
	return all
}

// sortedLines sorts the first lines, whose order depends on timing.
func sortedLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines[:slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "Skipped") })])
	return strings.Join(lines, "\n") + "\n"
}

func TestInterruptedReplayFails(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := replay.Publish(ctx, nil, []*replay.Item{{ID: 1, Verdict: replay.StillWanted}}, 0, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"20": "20/s", "20/s": "20/s", "600/m": "10/s", "1800/h": "0.5/s", "0": "0", "0/m": "0", "0.5": "0.5/s",
	} {
		var r curlctl.Rate
		if err := r.Set(text); err != nil || r.String() != want {
			t.Errorf("%q is %s, %v, want %s", text, r.String(), err, want)
		}
	}
	for _, text := range []string{"", "/s", "x", "-1", "NaN", "Inf", "1e999", "20/d", "20/", "20/s/s", "20 /s"} {
		r := curlctl.Rate(7)
		if err := r.Set(text); err == nil || r != 7 {
			t.Errorf("%q is %s, %v", text, r.String(), err)
		}
	}
}
