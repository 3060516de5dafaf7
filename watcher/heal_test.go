package watcher_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A key that was written", func() {
	var (
		w    *world
		key  pipeline.Key
		tape *tape
	)

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.watch().awaitReady()
		tape = w.record("curl.want.>")
		key = w.satisfied(ctx, "cm", "example.com")
	})

	drift := func(ctx context.Context) func() string {
		return func() string { return w.want(ctx, key)().GetDrift() }
	}

	It("needs no repair after our own writes", func() {
		Consistently(tape.causes).Should(ConsistOf(v1.Cause_CAUSE_NEW))
	})

	It("is requested again after an edit, with one Event", func(ctx SpecContext) {
		w.patch(ctx, somebody, "cm", object{"data": object{"k": "edited"}})
		Eventually(drift(ctx)).Should(HavePrefix(somebody + "/Update/"))
		Expect(w.want(ctx, key)().GetReadFirst()).To(BeTrue(), "what is there may be right already")
		w.patch(ctx, somebody, "cm", object{"data": object{"other": "value"}})
		w.answer(ctx, key, "mended")
		Eventually(func() []string { return w.notes(ctx, "Drifted") }).
			Should(ConsistOf("key k was changed by field manager " + somebody + "; it is fetched again"))
		Consistently(func() int { return len(w.notes(ctx, "Drifted")) }).Should(Equal(1))
		Expect(tape.causes()).To(ConsistOf(v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_DRIFT))
	})

	It("is in sync with a foreign but right value once the writer has found that", func(ctx SpecContext) {
		w.patch(ctx, somebody, "cm", object{"data": object{"k": "right"}})
		Eventually(drift(ctx)).ShouldNot(BeEmpty())
		w.report(ctx, key, func(e *status.Entry) {
			e.SHA256, e.Drift = digest("right"), w.want(ctx, key)().GetDrift()
		}, object{})
		Consistently(tape.causes).Should(ConsistOf(v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_DRIFT))
	})
})

var _ = Describe("An object without managedFields", func() {
	It("gets a want that makes the writer read first, and no Event of drift", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.create(ctx, "cm", "") // created without any field, it never gets a record
		w.watch().awaitReady()
		w.ask(ctx, "cm", "k=example.com")
		Eventually(func() bool { return w.want(ctx, w.key("cm", "k"))().GetReadFirst() }).Should(BeTrue())

		By("accepting the finding of the writer")
		w.answer(ctx, w.key("cm", "k"), "body")
		Eventually(func() string { return w.want(ctx, w.key("cm", "k"))().GetDrift() }).Should(Equal("unknown"))
		w.report(ctx, w.key("cm", "k"), func(e *status.Entry) { e.Drift = "unknown" }, object{})
		sequence := w.sequence(ctx, pipeline.Requests)()
		Consistently(w.sequence(ctx, pipeline.Requests)).Should(Equal(sequence))
		Expect(w.notes(ctx, "Drifted")).To(BeEmpty())
	})
})
