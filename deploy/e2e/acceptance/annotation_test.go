package acceptance_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/status"
)

// aWhile is how long specs watch that something does not happen.
const aWhile = time.Second

var _ = Describe("An annotation", func() {
	It("that is invalid is reported within 5 s by one Event, and works once it is corrected", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/page").Says("there")
		cm := w.Create(ctx, "explained", world.Asking("page="+page.URL()))
		cm.EventuallyHasData(ctx, "page", "there")
		problem := func() *status.Problem { return cm.Problem(ctx) }
		Expect(problem()).To(BeNil())

		By("reporting the whole value, and keeping the data")
		cm.Ask(ctx, "not correct")
		const sentence = "annotation value 'not correct' does not match expected format key=url"
		cm.EventuallyHasEventsWithin(ctx, 5*time.Second, "InvalidAnnotation")
		event := cm.Events(ctx)[0]
		Expect([]string{event.Type, event.Note, event.ReportingController, string(event.Regarding.UID)}).
			To(Equal([]string{"Warning", sentence, kube.Controller, string(cm.Get(ctx).UID)}))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("page", "there"))
		Eventually(ctx, problem).Should(HaveValue(And(HaveField("Error", "InvalidAnnotation"), HaveField("Message", sentence),
			HaveField("Since", BeTemporally("~", time.Now(), time.Minute)))))
		Expect(cm.Get(ctx).Annotations[annotation.StatusKey]).
			To(HavePrefix(`{"*":{"error":"InvalidAnnotation","message":"` + sentence + `","since":"2`))
		first := problem()

		By("reporting an invalid pair and an unknown annotation, and fetching the rest")
		cm.Annotate(ctx, "x-kv8s.io/curl-refrsh", "10m")
		cm.Ask(ctx, "page=ftp://example.com/?token=S3CR3T other="+page.URL())
		cm.EventuallyHasData(ctx, "other", "there")
		Eventually(ctx, problem).Should(HaveValue(HaveField("Message",
			"annotation curl-me-that, pair 1 (key page): the scheme must be http or https; use http:// or https://; "+
				"also annotation x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?")))
		Eventually(ctx, problem).Should(HaveValue(HaveField("Since", first.Since)))
		Expect(cm.Get(ctx).Annotations[annotation.StatusKey]).NotTo(ContainSubstring("S3CR3T"))

		By("writing nothing while nothing changes")
		w.EventuallyQuiet(ctx)
		writes := cm.Writes(ctx)
		cm.Label(ctx, "app", "other")
		Expect(w.Watcher().Kill()).To(Succeed())
		w.Watcher().Restart(ctx)
		w.Watcher().EventuallyReady(ctx)
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(writes))

		By("clearing the error once it is corrected")
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			"x-kv8s.io/curl-refrsh": nil, annotation.DefaultKey: "page=" + page.URL() + " other=" + page.URL(),
		}}})
		Eventually(ctx, problem).Should(BeNil())
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(And(HaveKeyWithValue("page", "there"), HaveKeyWithValue("other", "there")))
		Expect(cm.Writes(ctx)).To(Equal(writes + 1))
	})

	It("is ignored while the object is labelled reconciler=ignore", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ignored").Says("at last")
		cm := w.Create(ctx, "ignored", world.Asking("mydata="+page.URL()), world.Labelled("reconciler", "ignore"))
		Consistently(page.Hits).WithTimeout(aWhile).Should(BeZero())
		cm.Label(ctx, "reconciler", "")
		cm.EventuallyHasData(ctx, "mydata", "at last")
	})

	It("is not followed while the object is suspended", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "suspended", "first")
		second := w.Origin.Page("/second").Says("second")
		cm.Annotate(ctx, "x-kv8s.io/curl-suspend", "true")
		cm.Ask(ctx, "mydata="+second.URL())
		Consistently(second.Hits).WithTimeout(aWhile).Should(BeZero())
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "first"))

		cm.Unannotate(ctx, "x-kv8s.io/curl-suspend")
		cm.EventuallyHasData(ctx, "mydata", "second")
	})

	It("without a scheme gets the operator's default scheme", func(ctx SpecContext) {
		grammar := annotation.Defaults()
		grammar.DefaultScheme = "http"
		w := env.World(ctx, world.Options{Grammar: &grammar, Flags: map[string][]string{
			world.Watcher: {"--default-scheme=http"}, world.Writer: {"--default-scheme=http"},
		}})
		page := w.Origin.Page("/plain").Says("plain")
		cm := w.Create(ctx, "plain", world.Asking("mydata="+page.Bare()))
		cm.EventuallyHasData(ctx, "mydata", "plain")
	})
})

var _ = Describe("A change", func() {
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
	var (
		w     *world.World
		cm    *world.ConfigMap
		quick string
	)
	DescribeTable("the body of the old request is dropped if the ConfigMap is", func(
		ctx SpecContext, change func(context.Context), data map[string]string, writes int,
	) {
		w = env.World(ctx, world.Options{})
		quick = "mydata=" + w.Origin.Page("/quick").Says("current").URL()
		var release func()
		_, cm, release = w.Fetching(ctx, "overtaken", "outdated")
		change(ctx)
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
		cm.HasEvents(ctx)
	},
		Entry("given another URL", func(ctx context.Context) { cm.Ask(ctx, quick) },
			map[string]string{"mydata": "current"}, 1),
		Entry("re-created with another URL", func(ctx context.Context) {
			cm.Delete(ctx)
			w.Create(ctx, cm.Name, world.Asking(quick))
		}, map[string]string{"mydata": "current"}, 1),
	)
})
