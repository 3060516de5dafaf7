package fault_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	refreshKey = "x-kv8s.io/curl-refresh"
	// healLimit is how long a key may take to be up to date, with an audit every second, on a busy machine.
	healLimit = 28 * time.Second
	// overdueLimit is the limit for a timer that did not fire, which counts as lost when it is overdue for a
	// minute.
	overdueLimit = 100 * time.Second
)

var _ = Describe("A key with a refresh is filled", func() {
	It("after its timer fired while the disk of the broker was full", func(ctx SpecContext) {
		o := world.Audited(world.Options{Broker: runSmallBroker()})
		o.Flags[world.Watcher] = append(o.Flags[world.Watcher], "--max-results-bytes=16777216",
			"--max-failures-bytes=1048576")
		w := env.World(ctx, o)
		page, _ := w.Fill(ctx, "due", "in time", world.Annotated(refreshKey, "2s"))
		empty := fill(ctx, w)
		Eventually(func() time.Duration {
			arrivals := page.Arrivals()
			return time.Since(arrivals[len(arrivals)-1])
		}).Should(BeNumerically(">", 4*time.Second), "a refresh is overdue")
		empty(ctx)
		hits := page.Hits()
		Eventually(page.Hits).WithTimeout(overdueLimit).Should(BeNumerically(">", hits))
	})

	It("after more failures and recoveries than the stream holds, while no writer ran", func(ctx SpecContext) {
		w := env.World(ctx, world.Audited(world.Options{Without: []string{world.Writer}}))
		page := w.Origin.Page("/flapping").Tagged().Says("the one body")
		cm := w.Create(ctx, "flapping", world.Asking("mydata="+page.URL()), world.Annotated(refreshKey, "1s"))
		const cycles = 9 // one more than the stream keeps per subject
		Eventually(page.NotModified).Should(BeNumerically(">=", 1))
		for range cycles {
			hits := page.Hits()
			page.Fails(http.StatusServiceUnavailable)
			Eventually(page.Hits).Should(BeNumerically(">", hits), "a fetch that fails")
			same := page.NotModified()
			page.Says("the one body")
			Eventually(page.NotModified).Should(BeNumerically(">", same), "a fetch that finds the same body")
		}
		Expect(w.Stored(ctx, pipeline.Results, "curl.result.content.>")).To(Equal(1), "bodies that wait for the writer")
		w.Launch(ctx, world.Writer).EventuallyReady(ctx)
		cm.EventuallyHasDataWithin(ctx, healLimit, "mydata", "the one body")
	})
})

// runSmallBroker runs a NATS server with a disk of 32 MiB.
func runSmallBroker() (url string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(file, []byte("jetstream { max_file_store: 32MB }"), 0o600)).To(Succeed())
	server := suitetest.Must(natstest.Run(natstest.Options{Listen: true, ConfigFile: file}))
	DeferCleanup(server.Close)
	return server.URL()
}

// fill fills the disk of the broker until empty is called.
func fill(ctx context.Context, w *world.World) (empty func(context.Context)) {
	GinkgoHelper()
	const others = "others"
	suitetest.Must(w.JetStream.CreateStream(ctx, jetstream.StreamConfig{Name: others, Subjects: []string{others}}))
	for err := error(nil); err == nil; {
		_, err = w.JetStream.Publish(ctx, others, make([]byte, 900_000))
	}
	return func(ctx context.Context) {
		GinkgoHelper()
		Expect(w.JetStream.DeleteStream(ctx, others)).To(Succeed())
	}
}

// restoreLimit is how long a key may take to be up to date after a restore: one audit, and 30 s during which
// the writer trusts its own last write.
const restoreLimit = time.Minute

var _ = Describe("A restored backup", func() {
	It("of etcd fills its objects and forgets newer ones", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		home, saved := filepath.Join(dir, "home"), filepath.Join(dir, "saved")
		plane := startPlane(ctx, home)
		DeferCleanup(func(ctx SpecContext) error { return plane.Stop(ctx) })
		cluster := suitetest.Must(world.OpenCluster(plane.Kubeconfig()))
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
			EventuallyHasDataWithin(ctx, restoreLimit, "mydata", "newer")
		edited.Ask(ctx, "mydata="+other.URL())
		edited.EventuallyHasDataWithin(ctx, restoreLimit, "mydata", "other")
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
			EventuallyHasDataWithin(ctx, restoreLimit, "mydata", "other")
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).WithTimeout(restoreLimit).
			Should(Equal(1), "refreshes, none of a missing object")
	})
})

// startPlane starts a control plane with its data in a folder.
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

var _ = Describe("A ConfigMap with other writers", func() {
	It("is filled despite constant edits, which are kept", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/busy").Says("between the edits")
		cm := w.Create(ctx, "busy", world.Holding("counter", "0"))
		edits := 0
		stop := world.Meanwhile(ctx, func() {
			edits++
			cm.Put(ctx, "counter", fmt.Sprint(edits))
		})
		cm.Ask(ctx, "mydata="+page.URL())
		cm.EventuallyHasData(ctx, "mydata", "between the edits")
		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "between the edits")
		stop()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"counter": fmt.Sprint(edits), "mydata": "between the edits"}))
		Expect(cm.Writes(ctx)).To(Equal(2))
	})
})
