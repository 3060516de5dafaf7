package acceptance_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("An annotation", func() {
	It("that is invalid is reported within 5 s by one Event, and works once it is corrected", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/page").Says("there")
		cm := w.Create(ctx, "explained", world.Asking("page="+page.URL()))
		cm.EventuallyHasData(ctx, "page", "there")
		problem := func() *status.ObjectProblem { return cm.Problem(ctx) }
		Expect(problem()).To(BeNil())

		By("reporting the whole value, and keeping the data")
		cm.Ask(ctx, "not correct")
		const sentence = "annotation value 'not correct' does not match expected format key=url"
		cm.Within(5*time.Second).EventuallyHasEvents(ctx, "InvalidAnnotation")
		event := cm.Events(ctx)[0]
		Expect([]string{event.Type, event.Note, event.ReportingController, string(event.Regarding.UID)}).
			To(Equal([]string{"Warning", sentence, kube.Controller, string(cm.Get(ctx).UID)}))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("page", "there"))
		Eventually(ctx, problem).Should(HaveValue(And(HaveField("Error", "InvalidAnnotation"), HaveField("Message", sentence),
			HaveField("Since", BeTemporally("~", time.Now(), time.Minute)))))
		Expect(cm.Get(ctx).Annotations[annotation.StatusKey]).
			To(HavePrefix(`{"*":{"error":"InvalidAnnotation","message":"` + sentence + `","since":"2`))

		By("clearing the error once it is corrected")
		cm.Ask(ctx, "page="+page.URL()+" other="+page.URL())
		cm.EventuallyHasData(ctx, "other", "there")
		Eventually(ctx, problem).Should(BeNil())
	})
})

var _ = Describe("A suspended ConfigMap", func() {
	It("becomes an ordinary one by one edit that removes the annotation and the status", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "kept", "A")
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			annotation.DefaultKey: nil, annotation.StatusKey: nil,
		}}})
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "A"}))
		Expect(cm.Writes(ctx)).To(Equal(1))
		cm.HasEvents(ctx)
	})
})
