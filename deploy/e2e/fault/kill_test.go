// Package fault breaks the services and their dependencies one by one, and checks that the system keeps its
// promises.
package fault_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestFault(t *testing.T) { world.Run(t, "Fault") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are redelivered.
const shortAckWait = 3 * time.Second

// behindGateway starts a gateway to the suite's cluster, and returns it with options for a world whose named
// services use it.
func behindGateway(services ...string) (*kubetest.Gateway, world.Options) {
	GinkgoHelper()
	g, kubeconfig := env.Gateway()
	o := world.Options{Kubeconfigs: map[string]func(context.Context, string) string{}}
	for _, name := range services {
		o.Kubeconfigs[name] = kubeconfig
	}
	return g, o
}

var _ = Describe("kill -9", func() {
	It("of each service loses nothing and writes nothing twice while 120 ConfigMaps are filled", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait, Flags: neverParking()})
		load := w.Begin(ctx, 120)
		for n, name := range world.Services() {
			load.EventuallyFills(ctx, 20+30*n)
			Expect(w.Service(name).Kill()).To(Succeed())
			w.Service(name).Restart(ctx)
		}
		load.EventuallyEnds(ctx, 3*time.Minute)
		Expect(load.MostHits()).To(BeNumerically("<=", 1+len(world.Services())), "GETs of one page")
	})

	DescribeTable("of a writer during a patch causes one write", func(
		ctx SpecContext, fault kubetest.Fault, written bool,
	) {
		g, o := behindGateway(world.Writer)
		o.AckWait = shortAckWait
		w := env.World(ctx, o)
		page := w.Origin.Page("/once").Says("once is enough")
		g.Break(kubetest.Method(http.MethodPatch, fault))
		cm := w.Create(ctx, "once", world.Asking("mydata="+page.URL()))
		Eventually(func() int { return g.Requests(http.MethodPatch) }).Should(BeNumerically(">=", 1))
		if written {
			cm.EventuallyHasData(ctx, "mydata", "once is enough")
		}
		Expect(w.Writer().Kill()).To(Succeed())
		g.Heal()
		w.Writer().Restart(ctx)
		cm.EventuallyHasData(ctx, "mydata", "once is enough")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(1))
		Expect(page.Hits()).To(Equal(1))
	},
		Entry("before it", kubetest.Fault(kubetest.Silence), false),
		Entry("before its response", kubetest.Fault(kubetest.WithholdAnswer), true),
	)
})

var _ = Describe("SIGTERM", func() {
	It("drains each service within 30 s under load, and nothing waits for redelivery", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: neverParking()}) // a parked key comes back within a minute
		load := w.Begin(ctx, 120)
		for n, name := range world.Services() {
			load.EventuallyFills(ctx, 20+30*n)
			w.Service(name).ShouldStop(ctx)
			w.Service(name).Restart(ctx)
		}
		load.EventuallyEnds(ctx, 25*time.Second)
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	})
})

var _ = It("Two watchers hand over when the leader is killed and when it stops", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{Without: []string{world.Watcher}, Flags: neverParking()})
	election := []string{
		"--leader-elect", "--leader-elect-namespace=" + w.Namespace, "--leader-elect-lease-duration=8s",
		"--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=300ms",
	}
	leader := w.Launch(ctx, world.Watcher, election...)
	leader.EventuallyReady(ctx)
	Eventually(func() []string { return leader.Log.Matching(`"leading"`) }).Should(HaveLen(1))
	standby := w.Launch(ctx, world.Watcher, election...)
	standby.EventuallyReady(ctx)
	load := w.Begin(ctx, 40)
	load.EventuallyEnds(ctx, time.Minute)
	Expect(standby.Metric(ctx, "curlmethat_watcher_wants_published_total")).To(BeZero())

	Expect(leader.Kill()).To(Succeed())
	w.Fill(ctx, "after", "after the kill")
	Expect(standby.Log.Matching(`"leading"`)).To(HaveLen(1))

	leader.Restart(ctx)
	standby.ShouldStop(ctx)
	w.Fill(ctx, "end", "after the end")
	w.EventuallyQuiet(ctx)
	Expect(w.Published(ctx)).To(Equal(42), "messages in the stream")
	Expect(load.MostHits()).To(Equal(1), "GETs of one page")
})

// neverParking returns flags with enough slots for all keys, so that the fetcher publishes no timers that park
// keys.
func neverParking() map[string][]string {
	return map[string][]string{world.Fetcher: {"--concurrency=256", "--per-host=128"}}
}

// maxLines is the maximum number of lines that a service logs about an outage.
const maxLines = 60

var _ = Describe("An outage of the API server", func() {
	DescribeTable("with an error for every request stops no service:", func(ctx SpecContext, fault kubetest.Fault) {
		g, o := behindGateway(world.Watcher, world.Writer)
		w := env.World(ctx, o)
		load := w.Begin(ctx, 60)
		load.EventuallyFills(ctx, 20)
		said := lines(w)
		g.Break(kubetest.All(fault))
		Consistently(func() bool { return allRun(w) }).WithTimeout(5*time.Second).WithPolling(time.Second).
			Should(BeTrue(), "services keep running")
		asked := g.Requests(http.MethodPatch) + g.Requests(http.MethodGet)
		g.Heal()
		load.EventuallyEnds(ctx, 90*time.Second)
		Expect(asked).To(BeNumerically("<", 60+200), "requests while it refused")
		Expect(lines(w) - said).To(BeNumerically("<", 2*60+3*maxLines))
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	},
		Entry("503", kubetest.Answer(apierrors.NewServiceUnavailable("Service Unavailable"))),
		Entry("no response", kubetest.Fault(kubetest.Silence)),
	)

	It("that expires a watch does not hide deleted objects", func(ctx SpecContext) {
		g, o := behindGateway(world.Watcher)
		w := env.World(ctx, o)
		page := w.Origin.Page("/new").Says("new")
		_, gone := w.Fill(ctx, "gone", "refreshed", world.Annotated("x-kv8s.io/curl-refresh", "1s"))

		g.Break(func(r *http.Request) kubetest.Fault {
			if r.URL.Query().Get("watch") == "true" {
				return kubetest.Answer(apierrors.NewResourceExpired("too old"))
			}
			return kubetest.Silence
		})
		gone.Delete(ctx)
		cm := w.Create(ctx, "new", world.Asking("mydata="+page.URL()))
		g.Heal()
		cm.EventuallyHasData(ctx, "mydata", "new")
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).
			Should(BeZero(), "no refresh of deleted objects")
	})
})

func allRun(w *world.World) bool {
	for _, name := range world.Services() {
		if !w.Service(name).Running() {
			return false
		}
	}
	return true
}

// lines returns the number of log lines of all services.
func lines(w *world.World) int {
	n := 0
	for _, name := range world.Services() {
		n += w.Service(name).Log.Count()
	}
	return n
}

var _ = Describe("A denied write", func() {
	It("for lack of permission succeeds within one audit interval after the permission is granted", func(ctx SpecContext) {
		const (
			keys     = 12
			interval = 3 * time.Second
			// asks is the number of GETs per key after which the next one comes four intervals later.
			asks = 4
			// limit is one audit interval, doubled for a busy machine.
			limit = 2 * interval
		)
		var writer *world.Account
		w := env.World(ctx, world.Options{
			Flags:       map[string][]string{world.Watcher: {"--audit-interval=" + interval.String()}},
			Kubeconfigs: env.Cluster.WriterAccount(&writer),
		})
		writer.Revoke(ctx)
		pages := w.Origin.Pages(keys)
		var all []*world.ConfigMap
		for n, page := range pages {
			all = append(all, w.Create(ctx, fmt.Sprintf("refused-%03d", n), world.Asking("mydata="+page.Says("granted").URL())))
		}
		for _, page := range pages {
			Eventually(page.Hits).WithTimeout(2*time.Minute).Should(BeNumerically(">=", asks), "fetched at growing intervals")
		}
		writer.Grant(ctx)
		granted := time.Now()
		for _, cm := range all {
			cm.EventuallyHasDataWithin(ctx, time.Until(granted.Add(limit)), "mydata", "granted")
		}
	})
})

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

var _ = It("A restored backup of etcd fills its objects and forgets newer ones", func(ctx SpecContext) {
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

var _ = It("A ConfigMap with other writers is filled despite constant edits, which are kept", func(ctx SpecContext) {
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
