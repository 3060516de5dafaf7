package acceptance_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A change", func() {
	It("fetches the new URL when the annotation changes", func(ctx SpecContext) {
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

	It("fetches and writes nothing when something else of the object changes", func(ctx SpecContext) {
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

	It("ends with the last of ten changes in a row", func(ctx SpecContext) {
		env.World(ctx, world.Options{}).EndsWithLastOf(ctx, 10)
	})

	It("drops the body of the old URL when the URL changes during the fetch", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		quick := w.Origin.Page("/quick").Says("current")
		_, cm, release := w.Fetching(ctx, "overtaken", "outdated")
		cm.Ask(ctx, "mydata="+quick.URL())
		cm.EventuallyHasData(ctx, "mydata", "current")
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "current"))
		Expect(cm.Writes(ctx)).To(Equal(1))
	})

	It("leaves nothing behind when the annotation is removed during the fetch", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm, release := w.Fetching(ctx, "unasked", "unwanted")
		cm.Unannotate(ctx, "x-kv8s.io/curl-me-that")
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.want.>") }).Should(Equal(1), "a tombstone in place of the want")
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(BeZero())
	})
})

var _ = Describe("A ConfigMap", func() {
	It("does not create a ConfigMap that is deleted during the fetch", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm, release := w.Fetching(ctx, "deleted", "too late")
		cm.Delete(ctx)
		release()
		w.EventuallyQuiet(ctx)
		Expect(w.History.Latest("deleted")).To(BeNil())
		cm.Tells(ctx)
	})

	It("does not write to a ConfigMap that is re-created during the fetch without the annotation", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm, release := w.Fetching(ctx, "again", "for another one")
		cm.Delete(ctx)
		cm = w.Create(ctx, "again", world.Holding("other", "theirs"))
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(cm.Writes(ctx)).To(BeZero())
	})

	It("writes into a ConfigMap that is re-created during the fetch only what it asks for itself", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		quick := w.Origin.Page("/quick").Says("its own")
		_, cm, release := w.Fetching(ctx, "anew", "for another one")
		cm.Delete(ctx)
		cm = w.Create(ctx, "anew", world.Asking("mydata="+quick.URL()))
		cm.EventuallyHasData(ctx, "mydata", "its own")
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "its own"}))
		Expect(cm.Writes(ctx)).To(Equal(1))
	})

	It("fills a ConfigMap that is re-created with the same annotation", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/same").Says("the same")
		for n := range 3 {
			cm := w.Create(ctx, "same", world.Asking("mydata="+page.URL()), world.Holding("n", fmt.Sprint(n)))
			cm.EventuallyHasData(ctx, "mydata", "the same")
			cm.Delete(ctx)
		}
		w.EventuallyQuiet(ctx)
		Expect(w.History.Latest("same")).To(BeNil())
	})
})
