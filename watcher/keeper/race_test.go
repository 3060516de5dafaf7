package keeper

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("What changes while keeper works on a Watcher", func() {
	// once makes a change before the first request that reads or writes one object.
	once := func(r *rig, method, ending string, change func()) {
		r.before.Store(new(func(request *http.Request) {
			if request.Method == method && strings.HasSuffix(request.URL.Path+"?"+request.URL.Query().Get("fieldSelector"), ending) {
				r.before.Store(nil)
				change()
			}
		}))
	}
	merge := func(ctx SpecContext, r *rig, patch string) {
		GinkgoHelper()
		_, err := r.resources.Patch(ctx, "raced", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	generation := func(r *rig) int64 {
		if item := r.watchers.Get(types.NamespacedName{Namespace: r.namespace, Name: "raced"}); item != nil {
			return item.Value.Plan.Generation
		}
		return 0
	}

	It("is the Watcher: nothing of what it was is applied or reported", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx)
		r.apply(ctx, "raced", `configData: {a: one}`)
		Eventually(ctx, func() int64 { return generation(r) }).WithTimeout(patience).Should(BeEquivalentTo(1))
		once(r, http.MethodGet, "/watchers?metadata.name=raced", func() { merge(ctx, r, `{"spec":{"configData":{"a":"two"}}}`) })
		r.look(ctx, Default, []string{"raced"})
		Expect(r.before.Load()).To(BeNil(), "it was changed in between")
		Expect(r.writes.Load()).To(BeZero(), "requests that change something")

		Expect(generation(r)).To(BeEquivalentTo(2), "the next look is at what it is")
		r.look(ctx, Default, []string{"raced"})
		Expect(r.writes.Load()).To(BeEquivalentTo(2), "one apply, and one write of the status")
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"))
		made, err := r.core.ConfigMaps(r.namespace).Get(ctx, "raced-config", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(made.Data).To(Equal(map[string]string{"a": "two"}))
	})

	It("is its ConfigMap: it is applied once more, without a status in between", func(ctx SpecContext) {
		r := newRig(ctx)
		r.run(ctx)
		r.apply(ctx, "raced", `configData: {a: one}`)
		Eventually(ctx, func() int64 { return generation(r) }).WithTimeout(patience).Should(BeEquivalentTo(1))
		r.look(ctx, Default, []string{"raced"})
		merge(ctx, r, `{"spec":{"configData":{"a":"two"}}}`)
		Eventually(ctx, func() int64 { return generation(r) }).WithTimeout(patience).Should(BeEquivalentTo(2))
		before := r.writes.Load()
		once(r, http.MethodPatch, "/configmaps/raced-config?", func() {
			_, err := r.core.ConfigMaps(r.namespace).Patch(ctx, "raced-config", types.MergePatchType,
				[]byte(`{"data":{"mine":"kept"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
			Expect(err).NotTo(HaveOccurred())
		})
		raced := types.NamespacedName{Namespace: r.namespace, Name: "raced"}
		_, err := r.work.Reconcile(ctx, raced)
		Expect(err).To(MatchError(ContainSubstring("apply ConfigMap "+r.namespace+"/raced-config")), "to be tried again")
		Expect(r.writes.Load()-before).To(BeEquivalentTo(1), "the apply that conflicts")

		Eventually(ctx, func() error {
			_, err := r.work.Reconcile(ctx, raced)
			return err
		}).WithTimeout(patience).Should(Succeed(), "once the watch has delivered the change")
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"))
		made, err := r.core.ConfigMaps(r.namespace).Get(ctx, "raced-config", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(made.Data).To(Equal(map[string]string{"a": "two", "mine": "kept"}))
	})
})
