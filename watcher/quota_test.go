package watcher_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

var _ = Describe("A namespace that exceeds its limits", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	limited := func(l annotated.Limits) func(*options) {
		return func(o *options) { o.config.Quota = l }
	}

	It("gets some of its keys, the same ones after a restart, and others once there is room", func(ctx SpecContext) {
		for n := range 3 {
			w.create(ctx, fmt.Sprint("cm-", n), "k=example.com")
		}
		wanted := func() (names []string) {
			for n := range 3 {
				if name := fmt.Sprint("cm-", n); w.want(ctx, w.key(name, "k"))() != nil {
					names = append(names, name)
				}
			}
			return names
		}
		first := w.watch(limited(annotated.Limits{Keys: 2})).awaitReady()
		Eventually(wanted).Should(HaveLen(2))
		sentence := fmt.Sprintf("namespace %s asks for more than 2 keys and older ConfigMaps come first; remove some, "+
			"or have --namespace-keys raised", w.namespace)
		Eventually(func() []string { return w.notes(ctx, "InvalidAnnotation") }).Should(ConsistOf(sentence))
		Eventually(func() int { return len(w.reports(ctx)) }).Should(Equal(1))
		Expect(proto.Equal(w.reports(ctx)[0].GetReconcile(), &v1.Reconcile{Bound: &v1.Bound{Keys: 2}})).To(BeTrue())

		Expect(first.value(own + "invalid_objects")()).To(BeEquivalentTo(1))
		Expect(first.value(own+"keys{")()).To(BeEquivalentTo(2), "those within the limit")

		By("restarting the watcher")
		before := wanted()
		first.stop()
		w.watch(limited(annotated.Limits{Keys: 2})).awaitReady()
		Consistently(wanted).Should(Equal(before))
		Expect(w.notes(ctx, "InvalidAnnotation")).To(HaveLen(1))

		By("deleting an object with a key")
		w.delete(ctx, before[0])
		Eventually(wanted).WithTimeout(20 * time.Second).Should(And(HaveLen(2), Not(ContainElement(before[0]))))
	})
})
