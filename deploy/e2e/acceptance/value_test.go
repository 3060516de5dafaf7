package acceptance_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = It("A fetched value arrives within 5 s, in one write that touches nothing else", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	w.Origin.Page("/").Says("hello there")
	const kept = "  kept\r\nas it is \t"
	cm := w.Create(ctx, "cool", world.Asking("my-cool-value=http://"+w.Origin.Address()),
		world.Holding("other", kept), world.Labelled("app", "cool"), world.Annotated("example.com/note", "ünïcode ✓"))
	cm.Within(5*time.Second).EventuallyHasData(ctx, "my-cool-value", "hello there")
	w.EventuallyQuiet(ctx)

	after := cm.Get(ctx)
	Expect(after.Data).To(Equal(map[string]string{"my-cool-value": "hello there", "other": kept}))
	Expect(after.Labels).To(Equal(map[string]string{"app": "cool"}))
	Expect(after.Annotations).To(And(HaveLen(3), HaveKeyWithValue("example.com/note", "ünïcode ✓"),
		HaveKey(annotation.DefaultKey), HaveKey(annotation.StatusKey)))
	Expect(cm.Writes(ctx)).To(Equal(1))
	Expect(w.Origin.Hits()).To(Equal(1))
	cm.HasEvents(ctx)
})

var _ = Describe("A refresh of a URL", func() {
	It("delivers a changed body, and writes nothing for an unchanged one", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		again := w.Origin.Page("/news").Tagged().NotModified
		page, cm := w.Fill(ctx, "news", "morning", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		Eventually(again).Should(BeNumerically(">=", 2))
		Expect(cm.Writes(ctx)).To(Equal(1))
		page.Says("evening")
		cm.EventuallyHasData(ctx, "mydata", "evening")
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.HasEvents(ctx)
	})
})

var _ = Describe("A failed fetch", func() {
	It("keeps the last good value and emits one Event when it starts and one when it ends", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "moody", "good", world.Annotated("x-kv8s.io/curl-refresh", "1s"))

		page.Fails(http.StatusNotFound)
		cm.EventuallyHasEvents(ctx, "BadStatus")
		failed := page.Hits()
		Eventually(page.Hits).Should(BeNumerically(">=", failed+2), "it keeps trying")
		cm.HasEvents(ctx, "BadStatus")
		event := cm.Events(ctx)[0]
		Expect(event.Type).To(Equal("Warning"))
		Expect(event.Note).To(And(ContainSubstring("localhost"), ContainSubstring("404")))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "good"))
		Expect(w.Stored(ctx, pipeline.DeadLetters, "curl.failure.BadStatus.localhost.>")).To(BeNumerically(">=", 1))

		page.Says("good again")
		cm.EventuallyHasData(ctx, "mydata", "good again")
		cm.EventuallyHasEvents(ctx, "BadStatus", "Recovered")
		Expect(cm.Status(ctx, "mydata").Error).To(BeEmpty())
		Expect(cm.Writes(ctx)).To(BeElementOf(3, 4), "one more if it has lasted for three intervals, and is stale")
	})
})

var _ = It("An idle pipeline writes, publishes and fetches nothing", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	load := w.Begin(ctx, 40) // too few for the rate limit of the log, which would add a line
	load.EventuallyEnds(ctx, time.Minute)
	w.Create(ctx, "invalid", world.Asking("not correct")).EventuallyHasEvents(ctx, "InvalidAnnotation")
	w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+load.Pages[0].URL())).
		EventuallyHasEvents(ctx, "KeyExists")
	failing := w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/missing").URL()))
	failing.EventuallyHasEvents(ctx, "BadStatus")
	failing.EventuallyReports(ctx, "mydata", "BadStatus")
	w.EventuallyQuiet(ctx)
	before := w.Counters(ctx)
	Consistently(func() map[string]float64 { return w.Counters(ctx) }).
		WithTimeout(6 * time.Second).WithPolling(2 * time.Second).Should(Equal(before))
	Expect(w.Events(ctx)).To(HaveLen(3))
})
