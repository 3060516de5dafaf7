package watcher_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
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

	It("is requested again after its removal", func(ctx SpecContext) {
		w.patch(ctx, somebody, "cm", object{"data": nil})
		Eventually(drift(ctx)).Should(Equal("none"))
		Expect(w.want(ctx, key)().GetReadFirst()).To(BeFalse())
		Eventually(func() []string { return w.notes(ctx, "Drifted") }).
			Should(ConsistOf("key k was removed; it is fetched again"))
	})

	It("is requested again if its object was replaced by one without our status", func(ctx SpecContext) {
		// A watcher that starts later leaves the key to the audit, because it does not know that
		// the key was held. The watcher sees a later object after this one.
		w.create(ctx, "later", "k=example.com")
		Eventually(w.want(ctx, w.key("later", "k"))).ShouldNot(BeNil())
		_, err := kube.CoreV1().ConfigMaps(w.namespace).Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "cm", Namespace: w.namespace, Annotations: map[string]string{annotation.DefaultKey: "k=example.com"},
		}}, metav1.UpdateOptions{FieldManager: somebody})
		Expect(err).NotTo(HaveOccurred())
		Eventually(drift(ctx)).Should(Equal("none"))
		Eventually(func() []string { return w.notes(ctx, "Drifted") }).Should(HaveLen(1))
	})

	It("is in sync with a foreign but right value once the writer has found that", func(ctx SpecContext) {
		w.patch(ctx, somebody, "cm", object{"data": object{"k": "right"}})
		Eventually(drift(ctx)).ShouldNot(BeEmpty())
		w.report(ctx, key, func(e *status.Entry) {
			e.SHA256, e.Drift = digest("right"), w.want(ctx, key)().GetDrift()
		}, object{})
		Consistently(tape.causes).Should(ConsistOf(v1.Cause_CAUSE_NEW, v1.Cause_CAUSE_DRIFT))
	})

	It("is repaired at growing intervals if it keeps changing, with one Event", func(ctx SpecContext) {
		for n := range 3 {
			w.patch(ctx, somebody, "cm", object{"data": object{"k": fmt.Sprint("edit ", n)}})
			Eventually(tape.causes).Should(HaveLen(n + 2))
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeEquivalentTo(n+2), "the stream stores it a moment later")
			Expect(drift(ctx)()).NotTo(BeEmpty())
			w.answer(ctx, key, fmt.Sprint("mended ", n))
		}
		for n := range 3 {
			w.patch(ctx, somebody, "cm", object{"data": object{"k": fmt.Sprint("another edit ", n)}})
		}
		Eventually(func() []string { return w.notes(ctx, "Contested") }).
			Should(ConsistOf("key k keeps being changed by somebody else; it is repaired at growing intervals"))
		Consistently(tape.causes).Should(HaveLen(4))
		Expect(w.notes(ctx, "Contested")).To(HaveLen(1))
		Expect(w.notes(ctx, "Drifted")).To(HaveLen(3))
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
