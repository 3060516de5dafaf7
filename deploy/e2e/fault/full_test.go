package fault_test

import (
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
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
		cm.Within(healLimit).EventuallyHasData(ctx, "mydata", "the one body")
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
