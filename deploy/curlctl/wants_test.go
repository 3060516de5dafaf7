package curlctl_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("wants and failing", func() {
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

	It("shows wanted keys", func(ctx SpecContext) {
		Expect(w.run(ctx, "wants").err).To(HaveSuffix("No keys are wanted.\n"))
		w.fill(ctx)
		golden("wants", w.ok(ctx, "wants"))
		Expect(w.ok(ctx, "wants", "-n", "shop", "-o", "name")).To(Equal("key/shop/prices/k\n"))
		Expect(w.ok(ctx, "wants", "-o", "json")).NotTo(ContainSubstring("secret"))
	})

	It("skips unreadable messages with a hint", func(ctx SpecContext) {
		w.fill(ctx)
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
		gets := site.gets.Load()
		Expect(w.ok(ctx, "replay", "--name=cm-001")).To(Equal("Skipped 1 failure: recovered (--also-recovered replays " +
			"them, too).\nReplayed none of 1 failure.\n"))
		Expect(w.ok(ctx, "replay", "--name=cm-001", "--dry-run", "--also-recovered")).To(Equal("Would replay 1 failure.\n"))
		Expect(site.gets.Load()).To(Equal(gets))
		Expect(w.ok(ctx, "failures", "--limit=0", "-o", "json")).NotTo(ContainSubstring(`"now"`))
	})
})

// One key that has failed for a year does not hide when its host went down.
func TestAGroupSaysForWhomAndWhenMostOfItBegan(t *testing.T) {
	down := time.Date(2026, 11, 29, 3, 26, 0, 0, time.UTC)
	var all []keys.Key
	for i, namespace := range []string{"shop", "shop", "shop", "a", "a", "b", "c", "d"} {
		since := down.Add(time.Duration(i) * time.Second)
		if i == 0 {
			since = down.AddDate(-1, 0, 0)
		}
		all = append(all, keys.Key{
			ConfigMapKey: keys.ConfigMapKey{Namespace: namespace}, Host: "example.com",
			Condition: keystate.Condition{State: keystate.Failing, Reason: "Timeout", Since: since},
		})
	}
	all = append(all, keys.Key{Condition: keystate.Condition{State: keystate.OK}})
	groups := keys.Groups(all)
	if len(groups) != 1 || groups[0].Count != 8 || groups[0].Since.Sub(down).Abs() > time.Minute {
		t.Fatalf("%+v", groups)
	}
	if got := groups[0].Namespaces.String(); got != "shop 3, a 2, b 1, 2 more" {
		t.Error(got)
	}
	if got := keys.Count(all).String(); got != "8 of 9 keys failing" {
		t.Error(got)
	}
}
