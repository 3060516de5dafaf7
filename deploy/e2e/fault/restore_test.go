package fault_test

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/promise"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// restoreLimit is how long a key may take to be up to date after a restore: an audit, and the 30 s
// for which the writer trusts its own last write.
const restoreLimit = time.Minute

var _ = Describe("A restored backup", func() {
	It("of the broker loses no body if new messages overtake it before the watcher starts", func(ctx SpecContext) {
		const keys = 6
		broker := world.RunBroker()
		w := env.World(ctx, world.Audited(world.Options{Broker: broker.URL()}))
		pages := w.Origin.Pages(keys)
		cms := make([]*world.ConfigMap, keys)
		for i, page := range pages {
			page.Tagged().Says("first")
			cms[i] = w.Create(ctx, fmt.Sprintf("kept-%d", i), world.Asking("mydata="+page.URL()),
				world.Annotated(refreshKey, "1s"))
		}
		all := func(text string) {
			GinkgoHelper()
			for _, cm := range cms {
				cm.EventuallyHasDataWithin(ctx, healLimit, "mydata", text)
			}
		}
		all("first")
		broker.Save()
		// Now the fences of the objects get ahead of the copy.
		for n := range 3 {
			text := fmt.Sprintf("later %d", n)
			for _, page := range pages {
				page.Says(text)
			}
			all(text)
		}
		ahead := w.Published(ctx)
		Expect(w.Watcher().Kill()).To(Succeed())
		Expect(w.Fetcher().Signal(syscall.SIGSTOP)).To(Succeed())
		broker.Restore()
		Expect(w.Published(ctx)).To(BeNumerically("<", ahead), "messages in the copy")
		Expect(w.Fetcher().Signal(syscall.SIGCONT)).To(Succeed())
		// The following fetches have lower fences than the objects.
		for _, page := range pages {
			page.Says("last")
		}
		Eventually(func() int { return w.Published(ctx) }).WithTimeout(restoreLimit).
			Should(BeNumerically(">", ahead), "messages that overtake")
		w.Watcher().Restart(ctx)
		all("last")
		w.Unfinished()
	})

	It("of etcd fills the objects in it and drops newer ones", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		home, saved := filepath.Join(dir, "home"), filepath.Join(dir, "saved")
		plane := startPlane(ctx, home)
		DeferCleanup(func(ctx SpecContext) error { return plane.Stop(ctx) })
		cluster := suitetest.Must(world.OpenCluster(plane.Kubeconfig()))
		w := env.World(ctx, world.Audited(world.Options{Cluster: cluster}))
		page, once := w.Origin.Page("/refreshed").Tagged().Says("older"), w.Origin.Page("/once").Says("once")
		w.Create(ctx, "refreshed", world.Asking("mydata="+page.URL()), world.Annotated(refreshKey, "1s")).
			EventuallyHasData(ctx, "mydata", "older")
		edited := w.Create(ctx, "edited", world.Asking("mydata="+once.URL()))
		edited.EventuallyHasData(ctx, "mydata", "once")
		deleted := w.Create(ctx, "deleted", world.Asking("mydata="+once.URL()))
		deleted.EventuallyHasData(ctx, "mydata", "once")
		w.EventuallyQuiet(ctx)
		Expect(plane.Stop(ctx)).To(Succeed())
		world.PutBack(saved, home)

		plane = startPlane(ctx, home)
		page.Says("newer")
		other := w.Origin.Page("/other").Says("other")
		w.Create(ctx, "later", world.Asking("mydata="+page.URL()), world.Annotated(refreshKey, "1s")).
			EventuallyHasDataWithin(ctx, restoreLimit, "mydata", "newer")
		edited.Ask(ctx, "mydata="+other.URL())
		edited.EventuallyHasDataWithin(ctx, restoreLimit, "mydata", "other")
		deleted.Delete(ctx)
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).Should(Equal(2), "refreshes")
		Expect(plane.Stop(ctx)).To(Succeed())
		world.PutBack(home, saved)
		plane = startPlane(ctx, home)
		w.Restored(ctx)

		eventuallyRight(ctx, w, "refreshed", "newer")
		eventuallyRight(ctx, w, "edited", "once")
		eventuallyRight(ctx, w, "deleted", "once")
		w.Create(ctx, "after", world.Asking("mydata="+other.URL())).
			EventuallyHasDataWithin(ctx, restoreLimit, "mydata", "other")
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).WithTimeout(restoreLimit).
			Should(Equal(1), "refreshes, none of a missing object")
	})
})

// startPlane runs a control plane in a folder.
func startPlane(ctx context.Context, dir string) *controlplane.ControlPlane {
	GinkgoHelper()
	return suitetest.Must(controlplane.Start(ctx, controlplane.Options{Dir: dir, Progress: GinkgoWriter}))
}

// eventuallyRight waits until a restored object holds a text and keeps all promises.
func eventuallyRight(ctx context.Context, w *world.World, name, text string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		object := w.History.Latest(name)
		g.Expect(object).NotTo(BeNil())
		g.Expect(object.Data).To(HaveKeyWithValue("mydata", text))
		g.Expect(w.Checker().Right(promise.Heals, object)).To(BeEmpty())
	}).WithTimeout(restoreLimit).WithPolling(50 * time.Millisecond).Should(Succeed())
}
