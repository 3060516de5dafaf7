package acceptance_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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

	It("followed by nine more ends with the last one", func(ctx SpecContext) {
		env.World(ctx, world.Options{}).EndsWithLastOf(ctx, 10)
	})

	It("of the URL during the fetch drops the body of the old URL", func(ctx SpecContext) {
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

	It("that removes the annotation during the fetch leaves nothing behind", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm, release := w.Fetching(ctx, "unasked", "unwanted")
		cm.Unannotate(ctx, "x-kv8s.io/curl-me-that")
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.want.>") }).
			Should(Equal(1), "a tombstone in place of the want")
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(BeZero())
	})
})

var _ = Describe("A ConfigMap deleted during a fetch", func() {
	It("is not created again", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm, release := w.Fetching(ctx, "deleted", "too late")
		cm.Delete(ctx)
		release()
		w.EventuallyQuiet(ctx)
		Expect(w.History.Latest("deleted")).To(BeNil())
		cm.Tells(ctx)
	})

	It("and re-created without the annotation is not written", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm, release := w.Fetching(ctx, "again", "for the deleted object")
		cm.Delete(ctx)
		cm = w.Create(ctx, "again", world.Holding("other", "theirs"))
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(cm.Writes(ctx)).To(BeZero())
	})

	It("and re-created with another annotation gets only the keys that it asks for", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		quick := w.Origin.Page("/quick").Says("its own")
		_, cm, release := w.Fetching(ctx, "recreated", "for the deleted object")
		cm.Delete(ctx)
		cm = w.Create(ctx, "recreated", world.Asking("mydata="+quick.URL()))
		cm.EventuallyHasData(ctx, "mydata", "its own")
		release()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "its own"}))
		Expect(cm.Writes(ctx)).To(Equal(1))
	})

	It("and re-created with the same annotation is filled", func(ctx SpecContext) {
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
