package watcher_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
)

var _ = Describe("A namespace that exceeds its limits", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	limited := func(l quota.Limits) func(*options) {
		return func(o *options) { o.config.Quota = l }
	}

	It("gets a part of its keys, the same after a restart, and others when there is room", func(ctx SpecContext) {
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
		first := w.watch(limited(quota.Limits{Keys: 2})).awaitReady()
		Eventually(wanted).Should(HaveLen(2))
		sentence := fmt.Sprintf("namespace %s asks for more than 2 keys and older ConfigMaps come first; remove some, "+
			"or have --namespace-keys raised", w.namespace)
		Eventually(func() []string { return w.notes(ctx, "InvalidAnnotation") }).Should(ConsistOf(sentence))
		Eventually(func() int { return len(w.reports(ctx)) }).Should(Equal(1))
		Expect(proto.Equal(w.reports(ctx)[0].GetReconcile(), &v1.Reconcile{Bound: &v1.Bound{Keys: 2}})).To(BeTrue())

		By("restarting the watcher")
		before := wanted()
		first.stop()
		w.watch(limited(quota.Limits{Keys: 2})).awaitReady()
		Consistently(wanted).Should(Equal(before))
		Expect(w.notes(ctx, "InvalidAnnotation")).To(HaveLen(1))

		By("deleting an object with a key")
		w.delete(ctx, before[0])
		Eventually(wanted).WithTimeout(20 * time.Second).Should(And(HaveLen(2), Not(ContainElement(before[0]))))
	})

	It("keeps the values of keys beyond the limit", func(ctx SpecContext) {
		first := w.watch().awaitReady()
		key := w.satisfied(ctx, "cm", "example.com")
		first.stop()
		w.ask(ctx, "cm", "k=example.com more=example.com")
		w.watch(limited(quota.Limits{Keys: 1})).awaitReady()
		Eventually(w.retracted(ctx, key)).Should(BeTrue())
		Consistently(func() int { return len(w.removals(ctx)) }).Should(BeZero())
	})

	It("gets longer refresh intervals, with one Event", func(ctx SpecContext) {
		refreshed := func(cm *corev1.ConfigMap) { cm.Annotations["x-kv8s.io/curl-refresh"] = "10s" }
		for n := range 3 {
			w.create(ctx, fmt.Sprint("cm-", n), "a=example.com b=example.com c=example.com d=example.com e=example.com",
				refreshed)
		}
		w.watch(limited(quota.Limits{Refreshes: 1})).awaitReady()
		for n := range 3 {
			key := pipeline.Key{Namespace: w.namespace, Name: fmt.Sprint("cm-", n), Key: "a"}
			Eventually(func() time.Duration {
				return w.want(ctx,
					key)().GetRefresh().AsDuration()
			}).Should(Equal(20 * time.Second))
		}
		Eventually(func() []string { return w.notes(ctx, "AnnotationAdjusted") }).Should(ConsistOf(
			fmt.Sprintf("curl-refresh is multiplied by 2 in namespace %s; its 15 refreshed keys ask for more than 1 "+
				"refreshes a second", w.namespace)))
	})
})
