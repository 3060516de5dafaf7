package reconcile_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/watcher/keeper/internal/reconcile"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: name}
}

var _ = Describe("An index", func() {
	It("finds objects by their current names, sorted by rank and name, and returns the changed names", func() {
		x := reconcile.NewIndex()
		shared, other := named("shared"), named("other")
		Expect(x.Set(named("b"), 1, shared, other)).To(ConsistOf(shared, other))
		Expect(x.Set(named("a"), 1, shared)).To(ConsistOf(shared))
		Expect(x.Set(named("c"), 0, shared)).To(ConsistOf(shared))
		Expect(x.Of(shared)).To(Equal([]types.NamespacedName{named("c"), named("a"), named("b")}))
		first, _ := x.First(shared)
		Expect(first).To(Equal(named("c")))

		Expect(x.Set(named("b"), 1, other)).To(ConsistOf(shared, other, other))
		Expect(x.Set(named("b"), 1, other)).To(BeEmpty(), "unchanged")
		Expect(x.Set(named("c"), 2, shared)).To(ConsistOf(shared, shared), "recreated")
		Expect(x.Of(shared)).To(Equal([]types.NamespacedName{named("a"), named("c")}))
		Expect(x.Of(other)).To(Equal([]types.NamespacedName{named("b")}))
		Expect(x.Set(named("b"), 1)).To(ConsistOf(other))
		Expect(x.Set(named("b"), 2)).To(BeEmpty(), "forgotten")
		Expect(x.Of(other)).To(BeEmpty())
		_, found := x.First(other)
		Expect(found).To(BeFalse())
	})
})
