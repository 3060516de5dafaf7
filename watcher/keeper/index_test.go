package keeper

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: name}
}

var _ = Describe("An index", func() {
	It("finds objects by their current names, sorted by rank and name, and returns the changed names", func() {
		x := newIndex()
		shared, other := named("shared"), named("other")
		Expect(x.set(named("b"), 1, shared, other)).To(ConsistOf(shared, other))
		Expect(x.set(named("a"), 1, shared)).To(ConsistOf(shared))
		Expect(x.set(named("c"), 0, shared)).To(ConsistOf(shared))
		Expect(x.of(shared)).To(Equal([]types.NamespacedName{named("c"), named("a"), named("b")}))
		first, _ := x.first(shared)
		Expect(first).To(Equal(named("c")))

		Expect(x.set(named("b"), 1, other)).To(ConsistOf(shared, other, other))
		Expect(x.set(named("b"), 1, other)).To(BeEmpty(), "unchanged")
		Expect(x.set(named("c"), 2, shared)).To(ConsistOf(shared, shared), "recreated")
		Expect(x.of(shared)).To(Equal([]types.NamespacedName{named("a"), named("c")}))
		Expect(x.of(other)).To(Equal([]types.NamespacedName{named("b")}))
		Expect(x.set(named("b"), 1)).To(ConsistOf(other))
		Expect(x.set(named("b"), 2)).To(BeEmpty(), "forgotten")
		Expect(x.of(other)).To(BeEmpty())
		_, found := x.first(other)
		Expect(found).To(BeFalse())
	})
})
