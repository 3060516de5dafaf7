package index_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/index"
)

func TestIndex(t *testing.T) { suitetest.Run(t, "Index") }

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: name}
}

var _ = Describe("An index", func() {
	It("finds objects by their current names, sorted, and returns the previous names", func() {
		x := index.New()
		Expect(x.Set(named("second"), named("shared"), named("other"))).To(BeEmpty())
		Expect(x.Set(named("first"), named("shared"))).To(BeEmpty())
		Expect(x.Of(named("shared"))).To(Equal([]types.NamespacedName{named("first"), named("second")}))

		Expect(x.Set(named("second"), named("other"))).To(Equal([]types.NamespacedName{named("shared"), named("other")}))
		Expect(x.Of(named("shared"))).To(Equal([]types.NamespacedName{named("first")}))
		Expect(x.Of(named("other"))).To(Equal([]types.NamespacedName{named("second")}))
		Expect(x.Set(named("second"))).To(Equal([]types.NamespacedName{named("other")}))
		Expect(x.Of(named("other"))).To(BeEmpty())
	})
})
