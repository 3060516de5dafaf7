package curlctl_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/fetcher"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// A host of 500 keys fails, recovers, and fails again. Two commands lead from "something is wrong" to
// the host, the reason, the time and the number of keys.
var _ = Describe("In the night, an operator", func() {
	const many = 500

	It("finds in two commands which host fails, why, since when and for how many keys", func(ctx SpecContext) {
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
			MatchRegexp(`(?m)^500 +failing +BadStatus 503 +localhost +20m +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$`))
		Eventually(status).WithTimeout(time.Minute).Should(well)

		By("the host failing")
		bad.up.Store(false)
		w.ok(ctx, "refetch", "--all", "--yes", "--rate=0")
		Eventually(status).WithTimeout(time.Minute).Should(down)
		Expect(summary()).To(
			MatchRegexp(`^KEYS +STATE +REASON +HOST +FOR +SINCE\n500 +failing +BadStatus 503 +localhost +20m .*\n$`))
		Expect(w.ok(ctx, "failing", "--host=127.0.0.1")).To(BeEmpty())
		Expect(strings.Count(w.ok(ctx, "failing", "--reason=BadStatus", "--limit=7", "--no-headers"), "\n")).To(Equal(7))

		By("the host recovering, with nothing left to replay")
		Eventually(func() int { return w.failed(ctx) }).Should(Equal(many))
		bad.up.Store(true)
		Expect(w.ok(ctx, "replay", "--all", "--yes")).To(Equal("Replayed 500 failures.\n"))
		Eventually(status).WithTimeout(time.Minute).Should(well)
		gets := bad.gets.Load()
		Expect(w.ok(ctx, "replay", "--all", "--yes")).To(Equal(
			"Skipped 500 failures: recovered; --also-recovered replays them, too.\nReplayed none of 500 failures.\n"))
		Expect(bad.gets.Load()).To(Equal(gets))
		Expect(w.ok(ctx, "replay", "--all", "--dry-run", "--also-recovered")).To(Equal("Would replay 500 failures.\n"))

		By("the host failing again, which the record of the first time does not hide")
		bad.up.Store(false)
		w.ok(ctx, "refetch", "--all", "--yes", "--rate=0")
		Eventually(status).WithTimeout(time.Minute).Should(down)
		Expect(w.ok(ctx, "failures", "--limit=1", "--no-headers")).To(MatchRegexp(`BadStatus 503 +localhost .* failing `))
		Eventually(status).WithTimeout(time.Minute).Should(ContainSubstring("stopped: results wait and no writer takes them"))
	})
})
