package reconcile_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

func TestABacklogIsSharedByTheNamespaces(t *testing.T) {
	t.Parallel()
	g, b := NewWithT(t), reconcile.NewBacklog(nil)
	for namespace, share := range []int{512, 256, 170} {
		for range share {
			g.Expect(b.Check(fmt.Sprint(namespace))).To(Succeed())
			b.Add(fmt.Sprint(namespace), 1)
		}
		g.Expect(b.Check(fmt.Sprint(namespace))).To(MatchError(reconcile.ErrBacklogFull))
	}
}
