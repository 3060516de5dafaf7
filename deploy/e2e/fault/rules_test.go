package fault_test

import (
	"context"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	nowKey    = "x-kv8s.io/curl-now"
	expectKey = "x-kv8s.io/curl-expect"
	// login is the page of a proxy, with status 200.
	login = "<html>Sign in</html>"
)

var _ = Describe("A key with a rule keeps its last good value", func() {
	expecting := world.Annotated(expectKey, "mydata=size(json.rules) > 0")

	DescribeTable("when a service is killed while a login page arrives:", func(ctx SpecContext, name string) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		page := w.Origin.Page("/rules").Says(`{"rules":[1]}`)
		cm := w.Create(ctx, "rules", world.Asking("mydata="+page.URL()), expecting,
			world.Annotated("x-kv8s.io/curl-select", "mydata=json.rules"))
		cm.EventuallyHasData(ctx, "mydata", "[1]")
		killDuringFetch := func(body, now string) {
			GinkgoHelper()
			release := page.Says(body).Hold()
			cm.Annotate(ctx, nowKey, now)
			Eventually(page.Waiting).Should(Equal(1))
			Expect(w.Service(name).Kill()).To(Succeed())
			release()
			w.Service(name).Restart(ctx)
		}
		killDuringFetch(login, "1")
		cm.EventuallyReports(ctx, "mydata", "ContentRejected")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "[1]"))
		killDuringFetch(`{"rules":[2]}`, "2")
		cm.EventuallyHasData(ctx, "mydata", "[2]")
		cm.EventuallyReports(ctx, "mydata", "")
	},
		Entry("the watcher", world.Watcher), Entry("the fetcher", world.Fetcher), Entry("the writer", world.Writer),
	)

	It("when the rejected response is replayed, until the server gives a good one", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "replayed", `{"rules":[1]}`, expecting)
		page.Says(login)
		cm.Annotate(ctx, nowKey, "1")
		cm.EventuallyReports(ctx, "mydata", "ContentRejected")
		replay := func(outcome string) {
			GinkgoHelper()
			w.EventuallyQuiet(ctx)
			out, _ := exec.CommandContext(ctx, w.Program("curlctl"), "replay", "--nats-url", w.Broker(), "--host", "localhost",
				"--wait", "--timeout", "1m").CombinedOutput()
			Expect(string(out)).To(ContainSubstring(outcome))
		}
		replay("Outcome: 1 failed")
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", `{"rules":[1]}`))
		page.Says(`{"rules":[2]}`)
		replay("Outcome: 1 fetched.")
		cm.EventuallyHasData(ctx, "mydata", `{"rules":[2]}`)
		cm.EventuallyReports(ctx, "mydata", "")
	})

	It("when NATS is wiped, and fetches only if other rules let the value in", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/changed").Tagged()
		same, kept := w.Fill(ctx, "same", `{"rules":[1]}`, expecting)
		_, changed := w.Fill(ctx, "changed", `{"rules":[1]}`, expecting)
		w.EventuallyQuiet(ctx)
		Expect(w.Watcher().Kill()).To(Succeed())
		changed.Annotate(ctx, expectKey, "mydata=size(json.rules) > 1")
		Expect(w.NATS.Wipe()).To(Succeed())
		Expect(w.NATS.Start()).To(Succeed())
		w.Watcher().Restart(ctx)
		eventuallyFills(ctx, w)

		changed.EventuallyReports(ctx, "mydata", "ContentRejected")
		Expect(page.NotModified()).To(BeZero(), "the request has no validators")
		Expect(changed.Get(ctx).Data).To(HaveKeyWithValue("mydata", `{"rules":[1]}`))
		page.Says(`{"rules":[1,2]}`)
		changed.Annotate(ctx, nowKey, "1")
		changed.EventuallyHasData(ctx, "mydata", `{"rules":[1,2]}`)
		w.EventuallyQuiet(ctx)
		Expect(same.Hits()).To(Equal(1))
		Expect(kept.Writes(ctx)).To(Equal(1))
	})
})

// eventuallyFills waits until the system fills a new key.
func eventuallyFills(ctx context.Context, w *world.World) {
	GinkgoHelper()
	page := w.Origin.Page("/new").Says("new")
	w.Create(ctx, "new", world.Asking("mydata="+page.URL())).EventuallyHasDataWithin(ctx, time.Minute, "mydata", "new")
}
