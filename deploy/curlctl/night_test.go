package curlctl_test

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// nextTimer matches the time until the next timer, which is random.
var nextTimer = regexp.MustCompile(`the next in .*`)

// A host with 500 keys fails, recovers, and fails again.
var _ = Describe("An operator on call", func() {
	const many = 500

	It("finds out with two commands which host fails, why, since when and for how many keys", func(ctx SpecContext) {
		w, bad, good := newWorld(ctx), newOrigin(), newOrigin()
		bad.up.Store(true)
		good.up.Store(true)
		good.URL = strings.Replace(good.URL, "localhost", "127.0.0.1", 1)
		w.fetch(func(c *fetcher.Config) {
			c.Throttle.PerHost, c.Engine.MaxAttempts = 64, 1
			c.Engine.Retry.Base = time.Second
		})
		refresh := func(w *v1.Want) { w.Refresh = durationpb.New(time.Hour) }
		key := func(i int) pipeline.Key {
			return pipeline.Key{Namespace: fmt.Sprintf("team-%d", i%5), Name: fmt.Sprintf("fleet-%03d", i), Key: "rules"}
		}
		for i := range many {
			w.want(ctx, key(i), bad.URL+"/"+key(i).Name, refresh)
		}
		for i := range 3 {
			w.want(ctx, cm(i), good.URL, refresh)
		}
		status := func() string { return w.ok(ctx, "status") }
		summary := func() string { return w.ok(ctx, "failing", "--summary") }
		well := MatchRegexp(`Fetching: .*, 503 keys up to date\n`)
		down := And(
			MatchRegexp(`Fetching: .*, 500 of 503 keys failing\n`),
			MatchRegexp(`(?m)^500 +failing +BadStatus 503 +localhost +20m +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC +`+
				`team-0 100, .* 2 more$`))
		var transcript strings.Builder
		tell := func(now string, expected types.GomegaMatcher) {
			GinkgoHelper()
			Eventually(status).WithTimeout(time.Minute).Should(expected)
			seen := ""
			Eventually(func() string {
				results := suitetest.Must(w.js.Stream(ctx, pipeline.Results))
				Expect(results.Purge(ctx)).To(Succeed()) // like a writer
				seen, _, _ = strings.Cut(status(), "\nCONSUMER")
				return seen
			}).Should(ContainSubstring("working"))
			fmt.Fprintf(&transcript, "# %s\n$ curlctl status\n%s$ curlctl failing --summary\n%s\n",
				now, nextTimer.ReplaceAllString(seen, "the next in 39m, 0 within a minute"), summary())
		}
		tell("All is well.", well)

		By("the host failing")
		bad.up.Store(false)
		w.ok(ctx, "refetch", "--all", "--yes", "--rate=0")
		Eventually(func() int { return w.failed(ctx) }).WithTimeout(time.Minute).Should(Equal(many))
		tell("A host fails.", down)
		Expect(w.ok(ctx, "failing", "--host=127.0.0.1")).To(BeEmpty())
		Expect(strings.Count(w.ok(ctx, "failing", "--reason=BadStatus", "--limit=7", "--no-headers"), "\n")).To(Equal(7))

		By("the host recovering, with nothing left to replay")
		bad.up.Store(true)
		Expect(w.ok(ctx, "replay", "--all", "--yes")).To(Equal("Replayed 500 failures.\n"))
		tell("It has recovered.", well)
		gets := bad.gets.Load()
		Expect(w.ok(ctx, "replay", "--all", "--yes")).To(Equal(
			"Skipped 500 failures: recovered (--also-recovered replays them, too).\nReplayed none of 500 failures.\n"))
		Expect(bad.gets.Load()).To(Equal(gets))
		Expect(w.ok(ctx, "replay", "--all", "--dry-run", "--also-recovered")).To(Equal("Would replay 500 failures.\n"))

		By("the host failing again, which the record of the first time does not hide")
		bad.up.Store(false)
		w.ok(ctx, "refetch", "--all", "--yes", "--rate=0")
		Eventually(func() int { return w.failed(ctx) }).WithTimeout(time.Minute).Should(Equal(2 * many))
		tell("It fails again.", down)
		golden("night", transcript.String())
		Expect(w.ok(ctx, "failures", "--limit=1", "--no-headers")).To(MatchRegexp(`BadStatus 503 +localhost .* failing `))
		w.want(ctx, cm(4), good.URL)
		Eventually(status).WithTimeout(time.Minute).Should(ContainSubstring("stopped: results wait and no writer takes them"))
	})
})
