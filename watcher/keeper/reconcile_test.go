package keeper

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = It("A ConfigMap that the API server refuses is applied again after half a minute", func(ctx SpecContext) {
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
	Expect(r.reconcile(ctx, fixed)).To(Equal(30*time.Second), "time until the next attempt of a new keeper")
	Expect(r.writes.Load()).To(Equal(before+1), "the refused apply, and no status")
	Expect(r.core.ConfigMaps(r.namespace).Delete(ctx, fixed.Name, metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, r.targets.Len).WithTimeout(patience).Should(BeZero())
	r.clock.SetTime(r.clock.Now().Add(29 * time.Second))
	Expect(r.reconcile(ctx, fixed)).To(Equal(time.Second), "time until the next attempt")
	Expect(r.writes.Load()).To(Equal(before + 1))
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	r.reconcileAll(ctx, Default, []string{fixed.Name})
	Expect(r.ready(ctx, Default, fixed.Name)).To(Equal("True/Ready Fresh"))
	Expect(r.data(ctx, fixed.Name)).To(Equal(map[string]string{"a": "b"}))
})

var _ = Describe("A change during a reconcile", func() {
	var r *rig

	BeforeEach(func(ctx SpecContext) {
		r = newRig(ctx)
		r.run(ctx)
		r.apply(ctx, "raced", `configData: {a: one}`)
		r.eventuallyHas(ctx, "raced", 1)
	})

	It("prevents the apply and the report of the outdated plan", func(ctx SpecContext) {
		r.once(http.MethodGet, "/watchers?metadata.name=raced",
			func() { r.edit(ctx, "raced", `{"spec":{"configData":{"a":"two"}}}`) })
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.before.Load()).To(BeNil(), "the change is done")
		Expect(r.writes.Load()).To(BeZero(), "writes")

		r.eventuallyHas(ctx, "raced", 2)
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.writes.Load()).To(BeEquivalentTo(2), "one apply, and one write of the status")
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"))
		Expect(r.data(ctx, "raced-config")).To(Equal(map[string]string{"a": "two"}))
	})

	It("of the ConfigMap leads to another apply, without a status write in between", func(ctx SpecContext) {
		r.reconcileAll(ctx, Default, []string{"raced"})
		r.edit(ctx, "raced", `{"spec":{"configData":{"a":"two"}}}`)
		r.eventuallyHas(ctx, "raced", 2)
		before := r.writes.Load()
		r.once(http.MethodPatch, "/configmaps/raced-config?",
			func() { r.byHand(ctx, "raced-config", `{"data":{"mine":"kept"}}`) })
		_, err := r.reconcile(ctx, r.name("raced"))
		Expect(err).To(MatchError(ContainSubstring("apply ConfigMap "+r.namespace+"/raced-config")), "to be retried")
		Expect(r.writes.Load()-before).To(BeEquivalentTo(1), "the apply that conflicts")

		Eventually(ctx, func() error {
			_, err := r.reconcile(ctx, r.name("raced"))
			return err
		}).WithTimeout(patience).Should(Succeed(), "once the watch has delivered the change")
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"))
		Expect(r.data(ctx, "raced-config")).To(Equal(map[string]string{"a": "two", "mine": "kept"}))
	})

	It("is not reported if the namespace is deleted", func(ctx SpecContext) {
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.core.Namespaces().Delete(ctx, r.namespace, metav1.DeleteOptions{})).To(Succeed())
		Expect(r.core.ConfigMaps(r.namespace).Delete(ctx, "raced-config", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, r.targets.Len).WithTimeout(patience).Should(BeZero())
		Eventually(ctx, func() error { // the API server needs a moment, too
			_, err := r.core.ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithTimeout(patience).ShouldNot(Succeed())
		before := r.writes.Load()
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.writes.Load()-before).To(BeEquivalentTo(1), "the apply that is refused")
		Expect(suitetest.Must(r.core.Events(r.namespace).List(ctx, metav1.ListOptions{})).Items).To(BeEmpty())
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"), "as it was")
	})
})
