package reconcile_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

func TestABacklogIsSharedByTheNamespaces(t *testing.T) {
	t.Parallel()
	g, b := NewWithT(t), reconcile.NewBacklog(nil)
	for seq := range uint64(512) {
		g.Expect(b.Check("first")).To(Succeed())
		b.Add("first", seq)
	}
	for seq := range uint64(256) {
		g.Expect(b.Check("second")).To(Succeed(), "it has a half")
		b.Add("second", seq)
	}
	g.Expect([]error{b.Check("first"), b.Check("second"), b.Check("third")}).
		To(HaveExactElements(MatchError(reconcile.ErrBacklogFull), MatchError(reconcile.ErrBacklogFull), BeNil()))
}
