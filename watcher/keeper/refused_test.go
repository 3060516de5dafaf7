package keeper

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = Describe("A ConfigMap that the API server refuses", func() {
	It("is applied again after half a minute", func(ctx SpecContext) {
		r := newRig(ctx)
		fixed := r.name("fixed")
		suitetest.Must(r.core.ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fixed.Name, Labels: map[string]string{watchv1.WatcherLabel: fixed.Name}},
			Immutable:  new(true),
		}, metav1.CreateOptions{}))
		r.run(ctx)
		r.apply(ctx, fixed.Name, `configData: {a: b}, target: {name: fixed}`)
		r.eventuallyHas(ctx, fixed.Name, 1)
		r.reconcileAll(ctx, Default, []string{fixed.Name})
		Expect(r.ready(ctx, Default, fixed.Name)).To(Equal("False/TargetImmutable Fresh"))

		before := r.writes.Load()
		r.reconcileAll(ctx, Default, []string{fixed.Name})
		Expect(r.writes.Load()).To(Equal(before))

		r.begin()
		r.run(ctx)
		Expect(r.work.Reconcile(ctx, fixed)).To(Equal(30*time.Second), "time until the next attempt of a new keeper")
		Expect(r.writes.Load()).To(Equal(before+1), "the refused apply, and no status")
		Expect(r.core.ConfigMaps(r.namespace).Delete(ctx, fixed.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, r.targets.Len).WithTimeout(patience).Should(BeZero())
		r.clock.SetTime(r.clock.Now().Add(29 * time.Second))
		Expect(r.work.Reconcile(ctx, fixed)).To(Equal(time.Second), "time until the next attempt")
		Expect(r.writes.Load()).To(Equal(before + 1))
		r.clock.SetTime(r.clock.Now().Add(time.Second))
		r.reconcileAll(ctx, Default, []string{fixed.Name})
		Expect(r.ready(ctx, Default, fixed.Name)).To(Equal("True/Ready Fresh"))
		Expect(r.data(ctx, fixed.Name)).To(Equal(map[string]string{"a": "b"}))
	})
})
