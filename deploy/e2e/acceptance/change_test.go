package acceptance_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

var _ = Describe("A change", func() {
	It("of the annotation makes the fetcher get the new URL", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		first, second := w.Origin.Page("/first").Says("first"), w.Origin.Page("/second").Says("second")
		cm := w.Create(ctx, "moved", world.Asking("mydata="+first.URL()))
		cm.EventuallyHasData(ctx, "mydata", "first")
		cm.Ask(ctx, "mydata="+second.URL())
		cm.EventuallyHasData(ctx, "mydata", "second")
		w.EventuallyQuiet(ctx)
		Expect(cm.Status(ctx, "mydata").URL).To(Equal(second.URL()))
		Expect(cm.Writes(ctx)).To(Equal(2))
		Expect(first.Hits()).To(Equal(1))
	})

	It("of any other field causes no fetch and no write", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "still", "still")
		w.EventuallyQuiet(ctx)
		published := w.Watcher().Metric(ctx, "curlmethat_watcher_wants_published_total")
		cm.Label(ctx, "app", "other")
		cm.Put(ctx, "other", "theirs")
		cm.Annotate(ctx, "example.com/note", "new")
		Consistently(page.Hits).WithTimeout(aWhile).Should(Equal(1))
		Expect(w.Watcher().Metric(ctx, "curlmethat_watcher_wants_published_total")).To(Equal(published))
		Expect(cm.Writes(ctx)).To(Equal(1))
	})
})

var _ = Describe("During a fetch", func() {
	type edit func(ctx context.Context, w *world.World, cm *world.ConfigMap, quick string)
	DescribeTable("the body of the old request is dropped if the ConfigMap is", func(
		ctx SpecContext, change edit, data map[string]string, writes int,
	) {
		w := env.World(ctx, world.Options{})
		quick := w.Origin.Page("/quick").Says("current")
		_, cm, release := w.Fetching(ctx, "overtaken", "outdated")
		change(ctx, w, cm, quick.URL())
		if writes > 0 {
			cm.EventuallyHasData(ctx, "mydata", "current")
		}
		release()
		w.EventuallyQuiet(ctx)
		if object := w.History.Latest(cm.Name); object == nil {
			Expect(data).To(BeNil(), "the ConfigMap was deleted")
		} else {
			Expect(object.Data).To(Equal(data))
		}
		Expect(cm.Writes(ctx)).To(Equal(writes))
		cm.Tells(ctx)
	},
		Entry("given another URL", edit(func(ctx context.Context, _ *world.World, cm *world.ConfigMap, quick string) {
			cm.Ask(ctx, "mydata="+quick)
		}), map[string]string{"mydata": "current"}, 1),
		Entry("left without the annotation", edit(func(ctx context.Context, _ *world.World, cm *world.ConfigMap, _ string) {
			cm.Unannotate(ctx, annotation.DefaultKey)
		}), nil, 0),
		Entry("deleted", edit(func(ctx context.Context, _ *world.World, cm *world.ConfigMap, _ string) {
			cm.Delete(ctx)
		}), nil, 0),
		Entry("re-created without the annotation",
			edit(func(ctx context.Context, w *world.World, cm *world.ConfigMap, _ string) {
				cm.Delete(ctx)
				w.Create(ctx, cm.Name, world.Holding("other", "theirs"))
			}), map[string]string{"other": "theirs"}, 0),
		Entry("re-created with another URL",
			edit(func(ctx context.Context, w *world.World, cm *world.ConfigMap, quick string) {
				cm.Delete(ctx)
				w.Create(ctx, cm.Name, world.Asking("mydata="+quick))
			}), map[string]string{"mydata": "current"}, 1),
	)
})
