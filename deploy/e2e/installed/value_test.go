package installed_test

import (
	"bytes"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("A fetched value", func() {
	It("arrives in one write that touches nothing else", func(ctx SpecContext) {
		page := i.Page("/fill").Says(ctx, "hello there")
		cm := i.Create(ctx, "fill", world.Asking("mydata="+page.URL()),
			world.Holding("other", "  kept\r\nas it is \t"), world.Labelled("app", "cool"))
		cm.EventuallyHasData(ctx, "mydata", "hello there")
		shouldNotChange(ctx, cm)
		after := cm.Get(ctx)
		Expect(after.Data).To(Equal(map[string]string{"mydata": "hello there", "other": "  kept\r\nas it is \t"}))
		Expect(after.Labels).To(HaveKeyWithValue("app", "cool"))
		Expect(cm.Writes(ctx)).To(Equal(1))
		Expect(page.Hits(ctx)).To(Equal(1))
		cm.HasEvents(ctx)
	})

	It("is stored in binaryData if it is not text", func(ctx SpecContext) {
		body := bytes.Repeat([]byte{0, 1, 0xff, '\n', 0x80}, 4000)
		page := i.Page("/binary").Serves(ctx, body)
		cm := i.Create(ctx, "binary", world.Asking("bytes="+page.URL()))
		cm.EventuallyHasBinary(ctx, "bytes", body)
		Expect(cm.Get(ctx).Data).To(BeEmpty())
	})

	It("is fetched again when curl-now changes", func(ctx SpecContext) {
		page := i.Page("/now").Says(ctx, "before")
		cm := i.Create(ctx, "now", world.Asking("mydata="+page.URL()))
		cm.EventuallyHasData(ctx, "mydata", "before")
		shouldNotChange(ctx, cm) // longer than the response to a GET is shared
		page.Says(ctx, "after")
		cm.Annotate(ctx, "x-kv8s.io/curl-now", "please")
		cm.EventuallyHasData(ctx, "mydata", "after")
		Expect(page.Hits(ctx)).To(Equal(2))
	})

	It("is not written again if a refresh finds no change", func(ctx SpecContext) {
		page := i.Page("/refresh").Tagged().Says(ctx, "the same")
		cm := i.Create(ctx, "refresh", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		cm.EventuallyHasData(ctx, "mydata", "the same")
		version := cm.Get(ctx).ResourceVersion
		Eventually(ctx, func() int { return page.NotModified(ctx) }).Should(BeNumerically(">=", 2))
		Expect(cm.Get(ctx).ResourceVersion).To(Equal(version))
		page.Says(ctx, "another")
		cm.EventuallyHasData(ctx, "mydata", "another")
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.Unannotate(ctx, "x-kv8s.io/curl-refresh")
	})

	It("arrives in each of 50 ConfigMaps, in exactly one write", func(ctx SpecContext) {
		i.Load(ctx, "fifty", 50).ShouldEnd(ctx, 2*time.Minute)
	})
})

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is never overwritten", func(ctx SpecContext) {
		page := i.Page("/foreign").Says(ctx, "ours")
		cm := i.Create(ctx, "foreign", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		shouldHaveEvents(ctx, cm, "KeyExists")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs"))
		Expect(page.Hits(ctx)).To(BeZero())
	})

	It("that is edited by hand is repaired, with an Event", func(ctx SpecContext) {
		page := i.Page("/drift").Says(ctx, "as asked")
		cm := i.Create(ctx, "drift", world.Asking("mydata="+page.URL()))
		cm.EventuallyHasData(ctx, "mydata", "as asked")
		cm.Put(ctx, "mydata", "changed by hand")
		cm.EventuallyHasData(ctx, "mydata", "as asked")
		shouldHaveEvents(ctx, cm, "Drifted")
		Expect(cm.Writes(ctx)).To(Equal(2))
	})
})

var _ = Describe("An Event about", func() {
	It("an invalid annotation is emitted once, in these words", func(ctx SpecContext) {
		cm := i.Create(ctx, "invalid", world.Asking("not correct"))
		shouldHaveEvents(ctx, cm, "InvalidAnnotation")
		event := cm.Events(ctx)[0]
		Expect(event.Type).To(Equal("Warning"))
		Expect(event.Note).To(Equal("annotation value 'not correct' does not match expected format key=url"))
		Expect(event.Regarding.UID).To(Equal(cm.Get(ctx).UID))
		Eventually(ctx, func() int { return i.History.Writes(cm.Name) }).Should(Equal(1), "the status")
		cm.HasEvents(ctx, "InvalidAnnotation")
		Expect(cm.Writes(ctx)).To(Equal(1))
	})

	It("a failure is emitted once and its end once, while the last good value stays", func(ctx SpecContext) {
		page := i.Page("/moody").Says(ctx, "good")
		cm := i.Create(ctx, "moody", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		cm.EventuallyHasData(ctx, "mydata", "good")

		page.Fails(ctx, http.StatusNotFound)
		shouldHaveEvents(ctx, cm, "BadStatus")
		failed := page.Hits(ctx)
		Eventually(ctx, func() int { return page.Hits(ctx) }).Should(BeNumerically(">=", failed+2), "it keeps trying")
		cm.HasEvents(ctx, "BadStatus")
		Expect(cm.Events(ctx)[0].Note).To(ContainSubstring("404"))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "good"))

		page.Says(ctx, "good again")
		cm.EventuallyHasData(ctx, "mydata", "good again")
		shouldHaveEvents(ctx, cm, "BadStatus", "Recovered")
		Expect(cm.Writes(ctx)).To(BeElementOf(3, 4), "one more if it has lasted for three intervals, and is stale")
		cm.Unannotate(ctx, "x-kv8s.io/curl-refresh")
	})
})
