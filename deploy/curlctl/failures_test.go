package curlctl_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("failures", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		a, _ := w.want(ctx, cm(1), "https://a.example.com/page?token=secret")
		w.fail(ctx, a, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		w.failing(ctx, cm(2), "https://b.example.com/")
		w.failing(ctx, pipeline.Key{Namespace: "shop", Name: "kube-root-ca.crt", Key: "k"}, "https://a.example.com/c")
	})

	names := func(ctx SpecContext, args ...string) []string {
		GinkgoHelper()
		return strings.Fields(w.ok(ctx, append([]string{"failures", "-o", "name"}, args...)...))
	}

	It("lists failures, newest first", func(ctx SpecContext) {
		golden("failures", w.ok(ctx, "failures"))
		golden("failures-wide", w.ok(ctx, "failures", "-o", "wide"))
		Expect(w.ok(ctx, "failures", "--no-headers")).NotTo(ContainSubstring("REASON"))
		Expect(names(ctx, "--limit=2")).To(Equal([]string{"failure/3", "failure/2"}))
		Expect(w.run(ctx, "failures", "--limit=2").err).To(ContainSubstring("newest 2"))
	})

	It("lists a failure with an unreadable timer as pending", func(ctx SpecContext) {
		Expect(w.js.Publish(ctx, cm(1).Timer(), []byte("garbage"))).Error().NotTo(HaveOccurred())
		Expect(w.ok(ctx, "failures", "--name=cm-001")).To(MatchRegexp(`my.data +pending`))
	})

	It("selects failures by reason, host, namespace, name, key and time", func(ctx SpecContext) {
		Expect(names(ctx, "--reason=Timeout")).To(Equal([]string{"failure/3", "failure/2"}))
		Expect(names(ctx, "--host=A.example.com")).To(Equal([]string{"failure/3", "failure/1"}))
		Expect(names(ctx, "-n", "shop")).To(Equal([]string{"failure/3"}))
		Expect(names(ctx, "--name=cm-001")).To(Equal([]string{"failure/1"}))
		Expect(names(ctx, "--key=k")).To(Equal([]string{"failure/3"}))
		Expect(names(ctx, "--since=1h")).To(HaveLen(3))
		Expect(names(ctx, "--since=1m")).To(BeEmpty(), "they are 20 minutes old to the clock of the spec")
		Expect(names(ctx, "--until=1m")).To(HaveLen(3))
		Expect(w.run(ctx, "failures", "--reason=Timeout", "--host=c.example.com").err).
			To(Equal("No failures match. `curlctl failures --summary` shows reasons and hosts.\n"))
	})

	It("finds failures by the IP address in their URL", func(ctx SpecContext) {
		for i, url := range []string{"http://192.0.2.7:8080/a", "http://192.0.2.8/b", "http://[2001:db8::7]/c"} {
			w.failing(ctx, cm(10+i), url)
		}
		Expect(names(ctx, "--host=192.0.2.7")).To(Equal([]string{"failure/4"}))
		Expect(names(ctx, "--host=2001:DB8:0::7")).To(Equal([]string{"failure/6"}))
		Expect(names(ctx, "--host=(address)")).To(HaveLen(3))
		Expect(names(ctx, "--host=192.0.2.9")).To(BeEmpty())
		Expect(w.ok(ctx, "failures", "--summary", "--host=192.0.2.7")).To(MatchRegexp(`Timeout +\(address\) +1\n$`))
		Expect(w.ok(ctx, "replay", "--host=192.0.2.8")).To(Equal("Replayed 1 failure.\n"))
		Expect(w.ok(ctx, "failures", "purge", "--host=192.0.2.7", "--yes")).To(Equal("Removed 1 failure.\n"))
		Expect(names(ctx)).To(Equal([]string{"failure/6", "failure/5", "failure/3", "failure/2", "failure/1"}))
	})

	It("counts failures by reason and host", func(ctx SpecContext) {
		golden("failures-summary", w.ok(ctx, "failures", "--summary"))
		Expect(w.ok(ctx, "failures", "--summary", "--since=1h")).To(Equal(w.ok(ctx, "failures", "--summary")))
	})

	It("prints failures for programs, without secrets", func(ctx SpecContext) {
		var list struct{ Items []map[string]any }
		text := w.ok(ctx, "failures", "-o", "json")
		Expect(json.Unmarshal([]byte(text), &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(3))
		Expect(list.Items[2]).To(HaveKeyWithValue("status", BeEquivalentTo(503)))
		Expect(text).NotTo(ContainSubstring("secret"))
		Expect(json.Unmarshal([]byte(w.ok(ctx, "failures", "-o", "json", "--host=none")), &list)).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})

	It("shows one failure with all details", func(ctx SpecContext) {
		golden("failures-show", w.ok(ctx, "failures", "show", "1"))
		w.forget(ctx, cm(1))
		Expect(w.ok(ctx, "failures", "show", "failure/1")).To(MatchRegexp(`(?m)^Now: +gone$`))
		w.want(ctx, cm(1), "https://elsewhere.example.com/")
		Expect(w.ok(ctx, "failures", "show", "1")).To(MatchRegexp(`(?m)^Now: +changed$`))
		Expect(w.ok(ctx, "failures", "show", "1", "-o", "json")).To(ContainSubstring(`"now": "changed"`))
	})

	It("reports mistakes in one sentence with an exit code", func(ctx SpecContext) {
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{[]string{"failures", "show", "99"}, 5, "failure 99 not found"},
			{[]string{"failures", "show", "x"}, 2, `"x" is not the ID of a failure`},
			{[]string{"failures", "show"}, 2, "needs the ID of a failure"},
			{[]string{"failures", "--reason=Foo"}, 2, "is not one of"},
			{[]string{"failures", "--since=x"}, 2, "neither a duration"},
			{[]string{"failures", "--since=1h", "--until=2h"}, 2, "is not after"},
			{[]string{"failures", "--limit=x"}, 2, "--limit: \"x\" is not a number; see `curlctl failures --help`"},
			{[]string{"failures", "--limit=-1"}, 2, "must not be negative"},
			{[]string{"failures", "--summary=x"}, 2, "--summary: \"x\" is neither true nor false"},
			{[]string{"failing", "--reason=Nonsense"}, 2, "Nonsense\" is not one of InvalidAnnotation, "},
			{[]string{"replay"}, 2, "replay needs IDs, filters such as --host, or --all"},
			{[]string{"replay", "1", "--all"}, 2, "replay takes either IDs or filters, not both"},
			{[]string{"replay", "x"}, 2, `"x" is not the ID of a failure`},
			{[]string{"replay", "--all", "--timeout=0s"}, 2, "--timeout must be positive"},
			{[]string{"replay", "7"}, 5, "failure 7 not found"},
			{[]string{"replay", "--all", "--host=x"}, 2, "not both"},
			{[]string{"replay", "--rate=x", "1"}, 2, "--rate: \"x\" is not a rate such as 20/s"},
			{[]string{"pause", "--for=x"}, 2, "--for: \"x\" is not a duration such as 10m"},
			{[]string{"pause", "--for=-1s"}, 2, "must not be negative"},
			{[]string{"setup", "--replicas=2"}, 2, "2 must be 0, 1, 3 or 5"},
			{[]string{"setup", "--max-results-bytes=1000"}, 2, "--max-results-bytes: 1000 is less than 16 MiB"},
			{[]string{"status", "one"}, 2, "NAMESPACE/NAME"},
			{[]string{"status", "--nats-creds=/nope"}, 1, "--nats-creds: stat /nope: no such file or directory"},
			{[]string{"status", "--nats-creds=command.go"}, 1, "curlctl: --nats-creds: nkeys: no nkey seed found"},
			{[]string{"status", "--nats-nkey=command.go"}, 1, "curlctl: --nats-nkey: nkeys: no nkey seed found"},
			{[]string{"status", "--nats-ca=command.go"}, 1, "curlctl: --nats-ca: nats: failed to parse root certificate"},
			{[]string{"status", "--nats-cert=command.go"}, 1, "--nats-cert and --nats-key must be set together"},
			{[]string{"status", "--context=none"}, 3, "unknown context \"none\""},
			{[]string{"wants", "--stale=x"}, 2, "--stale: \"x\" is neither true nor false"},
			{[]string{"refetch"}, 2, "refetch needs NAMESPACE/NAME, --host, --url or --all"},
			{[]string{"check"}, 2, "check needs either NAMESPACE/NAME or -f MANIFEST"},
			{[]string{"check", "-f", "/nope"}, 1, "open /nope: no such file or directory"},
			{[]string{"failures", "purge"}, 2, "purge needs filters such as --host, or --all"},
			{[]string{"console", "--listen=x"}, 2, "--listen: \"x\" is not an address such as 127.0.0.1:8090"},
			{[]string{"identities"}, 2, "identities needs either --out DIR or --secrets NAMESPACE"},
			{
				[]string{"status", "--kubeconfig=/nope", "a/b"},
				3,
				"curlctl: cannot reach Kubernetes: get ConfigMap a/b: read kubeconfig /nope: stat /nope: no such file",
			},
			{[]string{"failures", "-o", "xml"}, 2, "--output"},
			{[]string{"failures", "--nonsense"}, 2, "unknown flag"},
			{[]string{"failures", "nonsense"}, 2, "does not accept"},
			{[]string{"failures", "purg"}, 2, "did you mean purge?"},
			{[]string{"replai"}, 2, "did you mean replay?"},
		} {
			r := w.run(ctx, c.args...)
			Expect(r.code).To(Equal(c.code), "%v: %s", c.args, r.err)
			Expect(r.err).To(ContainSubstring(c.says))
			Expect(strings.Count(r.err, "\n")).To(Equal(1))
		}
		Expect(w.ok(ctx, "replay", "--host=nosuch")).
			To(Equal("No failures match. `curlctl failures --summary` shows reasons and hosts.\n"))
		Expect(w.js.DeleteStream(ctx, pipeline.Failures)).To(Succeed())
		r := w.run(ctx, "failures")
		Expect(r.code).To(Equal(5))
		Expect(r.err).To(ContainSubstring("curlctl setup"))
		w.server.Stop()
		r = w.run(ctx, "failures")
		Expect(r.code).To(Equal(3))
		Expect(r.err).To(ContainSubstring("cannot connect to NATS at nats://127.0.0.1:"))
	})
})

var _ = Describe("failing", func() {
	var w *world
	// The clock of curlctl in these specs is 20 minutes and 30 seconds ahead.
	at := func(d time.Duration) time.Time { return time.Now().Add(20*time.Minute + 30*time.Second + d) }
	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	// keys adds keys that are failing, pending, stale and ok.
	keys := func(ctx SpecContext) {
		GinkgoHelper()
		refresh := func(w *v1.Want) { w.Refresh = durationpb.New(10 * time.Minute) }
		named := func(name string) pipeline.Key { return pipeline.Key{Namespace: "shop", Name: name, Key: "list"} }
		timer := func(name, url string, next time.Duration, change func(*v1.Due)) *v1.Want {
			due := &v1.Due{Cause: v1.Cause_CAUSE_REFRESH}
			change(due)
			return w.timed(ctx, named(name), url, due, time.Until(at(next)), refresh)
		}
		since := timestamppb.New(at(-30*time.Minute - 10*time.Second))
		missing := timer("missing", "https://a.example.com/prices?token=secret", 47*time.Minute+10*time.Second,
			func(d *v1.Due) {
				d.Cause, d.Reported, d.FirstFailedAt = v1.Cause_CAUSE_RECHECK, v1.FailureClass_FAILURE_CLASS_BAD_STATUS, since
				d.StatusCode = 503
			})
		w.fail(ctx, missing, v1.FailureClass_FAILURE_CLASS_BAD_STATUS)
		timer("slow", "http://192.0.2.7/", 10*time.Minute+10*time.Second, func(d *v1.Due) {
			d.Cause, d.Reported, d.Attempts, d.FirstFailedAt = v1.Cause_CAUSE_RETRY, v1.FailureClass_FAILURE_CLASS_TIMEOUT,
				2, timestamppb.New(at(-10*time.Minute-10*time.Second))
		})
		timer("paused-host", "https://b.example.com/", 10*time.Minute+10*time.Second, func(d *v1.Due) {
			d.Cause, d.WaitsFor = v1.Cause_CAUSE_PARKED, v1.WaitsFor_WAITS_FOR_PAUSE
		})
		timer("old", "https://c.example.com/", 10*time.Minute+10*time.Second,
			func(d *v1.Due) { d.FreshUntil = timestamppb.New(at(-25 * time.Minute)) })
		timer("late", "https://d.example.com/", -10*time.Minute, func(*v1.Due) {})
		timer("well", "https://e.example.com/", 10*time.Minute+10*time.Second,
			func(d *v1.Due) { d.FreshUntil = timestamppb.New(at(5 * time.Minute)) })
		w.want(ctx, named("new"), "https://f.example.com/")
	}

	It("lists failing, waiting and stale keys with reason and next try", func(ctx SpecContext) {
		keys(ctx)
		golden("failing", w.ok(ctx, "failing"))
		Expect(w.ok(ctx, "failing", "--host=192.0.2.7", "-o", "name")).To(Equal("key/shop/slow/list\n"))
		Expect(w.ok(ctx, "failing", "-n", "shop", "--name", "old", "-o", "name")).To(Equal("key/shop/old/list\n"))
		var list struct{ Items []map[string]any }
		text := w.ok(ctx, "failing", "-o", "json")
		Expect(json.Unmarshal([]byte(text), &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(6))
		Expect(list.Items[0]).To(And(HaveKeyWithValue("reason", "BadStatus"), HaveKeyWithValue("status",
			BeEquivalentTo(503)), HaveKeyWithValue("host", "a.example.com")))
		Expect(text).NotTo(ContainSubstring("secret"))
		Expect(w.ok(ctx, "failing", "--summary")).To(MatchRegexp(`1 +failing +BadStatus 503 +a.example.com +30m `))
		Expect(w.ok(ctx, "failing", "--summary", "-o", "json")).To(ContainSubstring(`"reason": "Parked",`))
		Expect(w.run(ctx, "failing", "-n", "elsewhere").err).To(HaveSuffix("No keys are failing, refused, contested, " +
			"stale or pending.\n"))
	})

	It("shows the last check of each key and what it waits for", func(ctx SpecContext) {
		keys(ctx)
		golden("failing-wide", w.ok(ctx, "failing", "-o", "wide"))
		Expect(w.ok(ctx, "wants", "--stale", "-o", "name")).To(Equal("key/shop/missing/list\nkey/shop/old/list\n"))
		Expect(w.run(ctx, "wants", "--stale", "-n", "elsewhere").err).To(HaveSuffix("No keys are wanted.\n"))
		var list struct{ Items []map[string]any }
		Expect(json.Unmarshal([]byte(w.ok(ctx, "wants", "--name", "slow", "-o", "json")), &list)).To(Succeed())
		Expect(list.Items).To(ConsistOf(And(
			HaveKey("lastChecked"), HaveKeyWithValue("state", "failing"), HaveKeyWithValue("reason", "Timeout"),
		)))
	})

	It("shows the pause of a host that responds with 429, which refetch ignores", func(ctx SpecContext) {
		site := newOrigin()
		site.busy.Store(true)
		w.fetch()
		w.want(ctx, cm(1), site.URL+"/page")
		Eventually(func() string { return w.ok(ctx, "failing", "-o", "wide") }).
			Should(MatchRegexp(`failing +BadStatus 429 .* pause of localhost +1 `))
		Expect(w.ok(ctx, "failures", "-o", "name")).To(BeEmpty(), "nothing was given up")
		Expect(w.ok(ctx, "status")).To(MatchRegexp(`1 +failing +BadStatus 429 +localhost .* 39m \(paused\) `))
		Expect(w.ok(ctx, "status", "-o", "json")).To(ContainSubstring(`"status": 429`))

		w.ok(ctx, "refetch", "default/cm-001")
		Eventually(site.gets.Load).Should(BeEquivalentTo(2), "an hour before the end of the pause")
		Eventually(func() string { return w.ok(ctx, "failing", "-o", "wide") }).
			Should(MatchRegexp(`failing +BadStatus 429 .* pause of localhost +1 `))
		site.busy.Store(false)
		site.up.Store(true)
		w.ok(ctx, "refetch", "default/cm-001")
		Eventually(func() string { return w.ok(ctx, "failing", "--name=cm-001", "-o", "name") }).Should(BeEmpty())
		Eventually(func() string { return w.ok(ctx, "status") }).ShouldNot(ContainSubstring("paused"))
	})

	It("does not list keys that have recovered", func(ctx SpecContext) {
		site := newOrigin()
		w.fetch()
		for i := range 4 {
			w.want(ctx, cm(i), site.URL+"/"+cm(i).Name)
		}
		Eventually(func() int { return w.failed(ctx) }).Should(Equal(4))
		Expect(w.ok(ctx, "failures", "--no-headers")).To(MatchRegexp(`(?m)^\d+ .*cm-000 .* failing `))
		Eventually(func() string { return w.ok(ctx, "failing") }).Should(MatchRegexp(`failing +BadStatus 503 .*cm-000`))
		site.up.Store(true)
		w.ok(ctx, "refetch", "default/cm-001")
		w.forget(ctx, cm(2))
		w.want(ctx, cm(3), site.URL+"/another")
		for name, now := range map[string]string{
			"cm-000": "failing", "cm-001": "recovered", "cm-002": "gone",
			"cm-003": "changed",
		} {
			Eventually(func() string { return w.ok(ctx, "failures", "--no-headers", "--name", name) }).
				Should(ContainSubstring(" "+now+" "), name)
		}
		Eventually(func() string { return w.ok(ctx, "failing", "-o", "name") }).Should(Equal("key/default/cm-000/my.data\n"))
		Expect(w.ok(ctx, "failures", "-o", "json", "--name", "cm-001")).To(ContainSubstring(`"now": "recovered"`))
		Expect(w.ok(ctx, "failures", "--limit=0", "-o", "json")).NotTo(ContainSubstring(`"now"`))
	})
})

var _ = Describe("replay", func() {
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
			_ = pipeline.Consume(ctx, w.js, pipeline.ConsumeOptions{
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
			for f, err := range w.client.DeadLetters(ctx, operate.DeadLetterFilter{}) {
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
		Expect(w.client.LastDue(ctx, cm(0))).Error().NotTo(HaveOccurred())
		Expect(w.client.LastDue(ctx, cm(1))).Error().To(MatchError(pipeline.ErrNoMessage))
	})

	It("changes nothing in a dry run", func(ctx SpecContext) {
		w.failing(ctx, cm(1), site.URL)
		before := w.lastSequences(ctx)
		Expect(w.ok(ctx, "replay", "--all", "--dry-run")).To(Equal("Would replay 1 failure.\n"))
		Expect(w.lastSequences(ctx)).To(Equal(before))
	})

	It("asks for confirmation above 100", func(ctx SpecContext) {
		for i := range 101 {
			w.failing(ctx, cm(i), site.URL)
		}
		before := w.lastSequences(ctx)
		r := w.run(ctx, "replay", "--all")
		Expect(r.code).To(Equal(8))
		Expect(r.err).To(ContainSubstring("--yes"))
		Expect(w.lastSequences(ctx)).To(Equal(before))
		Expect(w.ok(ctx, "replay", "--all", "--yes", "--rate=1000")).To(Equal("Replayed 101 failures.\n"))
	})
})

// lastSequences returns the last sequences of the streams.
func (w *world) lastSequences(ctx context.Context) (all []uint64) {
	GinkgoHelper()
	for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures} {
		stream := suitetest.Must(w.js.Stream(ctx, name))
		all = append(all, stream.CachedInfo().State.LastSeq)
	}
	return all
}

// sortedLines sorts the first lines, whose order depends on timing.
func sortedLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines[:slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "Skipped") })])
	return strings.Join(lines, "\n") + "\n"
}
