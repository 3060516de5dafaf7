package permissions_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("With the shipped configuration", func() {
	It("the whole pipeline works without a violation", func(ctx SpecContext) {
		b := start(ctx, overTLS)
		b.as(ctx, "setup", "setup")
		b.policy = true
		w := b.world(ctx)

		By("filling, refreshing, moving, editing, pruning and repairing")
		page := w.Origin.Page("/news").Says("first")
		mixed := w.Origin.Page("/mixed").Serves([]byte{0xff, 0xfe})
		cm := w.Create(ctx, "news", world.Asking("text="+page.URL()+" mixed="+mixed.URL()),
			world.Holding("theirs", "stays"), world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		cm.EventuallyHasData(ctx, "text", "first")
		cm.EventuallyHasBinary(ctx, "mixed", []byte{0xff, 0xfe})
		page.Says("second")
		cm.EventuallyHasData(ctx, "text", "second")
		mixed.Says("words")
		cm.EventuallyHasData(ctx, "mixed", "words")
		cm.Ask(ctx, "text="+page.URL())
		cm.EventuallyLacks(ctx, "mixed")
		cm.Put(ctx, "text", "by hand")
		cm.EventuallyHasData(ctx, "text", "second")
		cm.Drop(ctx, "text")
		cm.EventuallyHasData(ctx, "text", "second")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("theirs", "stays"))

		By("letting keys wait for a slot of their host")
		var pairs []string
		for i, page := range w.Origin.Pages(20) {
			pairs = append(pairs, fmt.Sprintf("key%d=%s", i, page.Takes(time.Second).URL()))
		}
		many := w.Create(ctx, "many", world.Asking(strings.Join(pairs, " ")))
		Eventually(ctx, func() int { return len(many.Get(ctx).Data) }).Should(Equal(len(pairs)))
		Expect(w.Fetcher().Metric(ctx, "curlmethat_fetcher_claims_total", `outcome="won"`)).To(BeNumerically(">", 0))

		By("failing, and storing the failure")
		broken := w.Origin.Page("/broken").Fails(503)
		ill := w.Create(ctx, "ill", world.Asking("text="+broken.URL()))
		ill.EventuallyHasEvents(ctx, "BadStatus")
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.DeadLetters, "curl.failure.>") }).Should(Equal(1))
		By("reporting occupied keys and immutable ConfigMaps")
		w.Create(ctx, "occupied", world.Holding("text", "stays"), world.Asking("text="+page.URL())).
			EventuallyHasEvents(ctx, "KeyExists")
		w.Create(ctx, "immutable", world.Immutable(), world.Asking("text="+page.URL())).EventuallyHasEvents(ctx, "Immutable")
		By("storing invalid messages as dead letters")
		for _, subject := range []string{"curl.due.default.junk.key", "curl.result.content.default.junk.key"} {
			suitetest.Must(w.JetStream.Publish(ctx, subject, []byte("junk")))
		}
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.DeadLetters, "curl.failure.Malformed.>") }).
			Should(Equal(2))

		By("inspecting, replaying and administering")
		for _, command := range []string{
			"failures", "failures --summary", "wants", "status", "doctor", "setup --dry-run", "replay --all --dry-run",
		} {
			b.as(ctx, "viewer", strings.Fields(command)...)
		}
		broken.Says("well")
		b.as(ctx, "replayer", "replay", "--host", "localhost", "--wait", "--timeout", "2m")
		ill.EventuallyHasData(ctx, "text", "well")
		b.as(ctx, "replayer", "refetch", w.Namespace+"/ill")
		b.as(ctx, "replayer", "replay", "--all", "--rate", "100")
		b.as(ctx, "admin", "pause")
		b.as(ctx, "admin", "resume")
		b.as(ctx, "admin", "failures", "purge", "--all", "--yes")

		By("ending")
		cm.Annotate(ctx, annotation.DefaultKey, "")
		cm.Delete(ctx)
		ill.Unannotate(ctx, annotation.DefaultKey)
		ill.EventuallyLacks(ctx, "text")
		w.EventuallyQuiet(ctx)
		b.shouldViolateNothing(w)
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total", `outcome="rejected"`)).To(BeZero())
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total", `outcome="forbidden"`)).To(BeZero())
	})

	It("three replicas of each stream fit on the smallest disks of three servers", func(ctx SpecContext) {
		b := start(ctx, onSmallestDisks)
		setup := b.with("setup", "setup", "--replicas", "3") // it fails until a leader is elected
		Eventually(ctx, func() error { return world.ErrorOf(b.try(ctx, setup...)) }).WithTimeout(recreateTimeout).
			Should(Succeed())
	})

	It("setup recreates lost streams, and the watcher refills them", func(ctx SpecContext) {
		b := start(ctx, plain)
		b.heal(ctx)
		w := b.world(ctx)
		page, cm := w.Fill(ctx, "news", "first", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		w.EventuallyQuiet(ctx)

		for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters} {
			Expect(w.JetStream.DeleteStream(ctx, name)).To(Succeed())
		}
		page.Says("second")
		cm.Within(time.Minute).EventuallyHasData(ctx, "mydata", "second")
		Eventually(ctx, func() string { out, _ := b.try(ctx, b.with("setup", "setup", "--dry-run")...); return out }).
			WithPolling(time.Second).Should(ContainSubstring("are up to date"), "setup has nothing left to do")
		b.shouldViolateNothing(w)
	})
})
