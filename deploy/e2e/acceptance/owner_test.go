package acceptance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is kept until its owner removes it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		cm.EventuallyTells(ctx, "KeyExists")
		cm.EventuallyReports(ctx, "mydata", "KeyExists")
		cm.Put(ctx, "mydata", "theirs as before")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs as before"))
		Expect(page.Hits()).To(BeZero())
		Expect(cm.Writes(ctx)).To(Equal(1), "the status, when it was found")
		Expect(cm.Status(ctx, "mydata").Why().Message).
			To(HavePrefix("key mydata already exists and is not managed by curl-me-that"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
		cm.EventuallyReports(ctx, "mydata", "")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited by hand is repaired, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "drift", "as asked")

		cm.Put(ctx, "mydata", "changed by hand")
		cm.EventuallyHasData(ctx, "mydata", "as asked")
		w.EventuallyQuiet(ctx)
		cm.Tells(ctx, "Drifted")
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was removed by hand is repaired, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "gone", "as asked", world.Holding("other", "theirs"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "as asked")
		w.EventuallyQuiet(ctx)
		cm.Tells(ctx, "Drifted")
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited twice in a row is repaired twice", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "twice", "as asked")
		for _, text := range []string{"once", "twice"} {
			cm.Put(ctx, "mydata", text)
			cm.EventuallyHasData(ctx, "mydata", "as asked")
		}
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(3))
	})

	It("is not written again after an edit to the fetched value", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "same", "old")
		pastSharing(page)
		page.Says("new")
		cm.Put(ctx, "mydata", "new")
		cm.EventuallyHasData(ctx, "mydata", "new")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "new"))
	})

	It("is pruned when its pair is removed, and other keys stay", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "pruned", world.Asking("a="+a.URL()+" b="+b.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")

		cm.Ask(ctx, "b="+b.URL())
		cm.EventuallyLacks(ctx, "a")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"b": "B", "other": "theirs"}))

		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "b")
		w.EventuallyQuiet(ctx)
		left := cm.Get(ctx)
		Expect(left.Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(left.Annotations).NotTo(HaveKey(annotation.StatusKey))
		Expect(b.Hits()).To(Equal(1))
	})

	It("stays when its pair is removed if pruning is disabled", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Writer: {"--prune=false"}}})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "kept", world.Asking("a="+a.URL()+" b="+b.URL()))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")
		cm.Ask(ctx, "b="+b.URL())
		Eventually(ctx, func() string { return cm.Get(ctx).Annotations[annotation.StatusKey] }).
			ShouldNot(ContainSubstring(a.URL()))
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
	})

	It("that another manager took over stays when its pair is removed", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "taken", "ours")
		cm.Patch(ctx, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{annotation.DefaultKey: nil}},
			"data":     map[string]any{"mydata": "theirs now"},
		})
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs now"))
	})

	It("of an immutable ConfigMap is reported by one Event, without a storm of retries", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/fixed").Says("too late")
		cm := w.Create(ctx, "fixed", world.Holding("other", "theirs"), world.Immutable(), world.Asking("mydata="+page.URL()))
		cm.EventuallyTells(ctx, "Immutable")
		w.EventuallyQuiet(ctx)
		Consistently(ctx, func() []string { return cm.Reasons(ctx) }).WithTimeout(aWhile).Should(ConsistOf("Immutable"))
		Expect(cm.Writes(ctx)).To(BeNumerically("<=", 1))
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total")).To(BeNumerically("<=", 2))
	})

	It("whose body makes the ConfigMap too large for the API is reported by one Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/large").Serves(make([]byte, 600<<10))
		small := w.Origin.Page("/small").Says("small")
		cm := w.Create(ctx, "full", world.Holding("other", string(make([]byte, 600<<10))),
			world.Asking("large="+page.URL()+" small="+small.URL()))
		cm.EventuallyTells(ctx, "BodyTooLarge")
		cm.EventuallyHasData(ctx, "small", "small")
		w.EventuallyQuiet(ctx)
		Consistently(ctx, func() []string { return cm.Reasons(ctx) }).WithTimeout(aWhile).Should(ConsistOf("BodyTooLarge"))
		cm.EventuallyReports(ctx, "large", "BodyTooLarge")
	})
})
