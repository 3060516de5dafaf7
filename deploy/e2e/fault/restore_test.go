package fault_test

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// restoreLimit is how long a key may take to be up to date after a restore: one audit, and 30 s during which
// the writer trusts its own last write.
const restoreLimit = time.Minute

var _ = It("A restored backup of etcd fills its objects and forgets newer ones", func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	home, saved := filepath.Join(dir, "home"), filepath.Join(dir, "saved")
	plane := startPlane(ctx, home)
	DeferCleanup(func(ctx SpecContext) error { return plane.Stop(ctx) })
	cluster := world.OpenCluster(plane.Kubeconfig())
	w := env.World(ctx, world.Audited(world.Options{Cluster: cluster}))
	w.Origin.Page("/refreshed").Tagged()
	page, _ := w.Fill(ctx, "refreshed", "older", world.Annotated(refreshKey, "1s"))
	_, edited := w.Fill(ctx, "edited", "once")
	_, deleted := w.Fill(ctx, "deleted", "once")
	w.EventuallyQuiet(ctx)
	Expect(plane.Stop(ctx)).To(Succeed())
	world.ReplaceDir(saved, home)

	plane = startPlane(ctx, home)
	page.Says("newer")
	other := w.Origin.Page("/other").Says("other")
	w.Create(ctx, "later", world.Asking("mydata="+page.URL()), world.Annotated(refreshKey, "1s")).
		Within(restoreLimit).EventuallyHasData(ctx, "mydata", "newer")
	edited.Ask(ctx, "mydata="+other.URL())
	edited.Within(restoreLimit).EventuallyHasData(ctx, "mydata", "other")
	deleted.Delete(ctx)
	Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).Should(Equal(2), "refreshes")
	Expect(plane.Stop(ctx)).To(Succeed())
	world.ReplaceDir(home, saved)
	plane = startPlane(ctx, home)
	w.Restored(ctx)

	eventuallyRight(ctx, w, "refreshed", "newer")
	eventuallyRight(ctx, w, "edited", "once")
	eventuallyRight(ctx, w, "deleted", "once")
	w.Create(ctx, "after", world.Asking("mydata="+other.URL())).
		Within(restoreLimit).EventuallyHasData(ctx, "mydata", "other")
	Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).WithTimeout(restoreLimit).
		Should(Equal(1), "refreshes, none of a missing object")
})

// startPlane starts a control plane with its data in a folder.
func startPlane(ctx context.Context, dir string) *controlplane.ControlPlane {
	GinkgoHelper()
	return suitetest.Must(controlplane.Start(ctx, controlplane.Options{Dir: dir, Progress: GinkgoWriter}))
}
