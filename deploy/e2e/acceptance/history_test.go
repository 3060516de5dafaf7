package acceptance_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("An earlier content", func() {
	It("comes back with one command, one write and no GET, and newer content waits for the approval", func(
		ctx SpecContext,
	) {
		w := env.World(ctx, world.Options{})
		name := w.Namespace + "/rules"
		curlctl := func(args ...string) string {
			GinkgoHelper()
			args = append([]string{args[0], name}, args[1:]...)
			p := run("curlctl", []string{"KUBECONFIG=" + env.Cluster.Kubeconfig}, append(args, "--nats-url="+w.Broker())...)
			Expect(p.Wait(ctx)).To(BeZero(), p.Log.String())
			return p.Log.String()
		}
		page := w.Origin.Page("/rules").Says("one")
		cm := w.Create(ctx, "rules", world.Asking("rules.json="+page.URL()),
			world.Annotated("x-kv8s.io/curl-refresh", "1h"))
		// changed counts the writes of the services, not those of curlctl.
		changed := func(ctx context.Context) int {
			GinkgoHelper()
			w.EventuallyCaughtUp(ctx)
			for _, life := range w.History.Lives() {
				pin := ""
				for _, v := range life.Versions {
					if now := v.Object.Annotations["x-kv8s.io/curl-sha256"]; now != pin {
						pin = now
						w.History.BySpec(v.Object)
					}
				}
			}
			return w.History.Writes(cm.Name)
		}
		DeferCleanup(func(ctx SpecContext) { changed(ctx) })
		// pins runs a command that changes the pin, after which the key has the body.
		pins := func(body string, args ...string) string {
			GinkgoHelper()
			gets, writes, began := page.Hits(), changed(ctx), time.Now()
			out := curlctl(append(args, "--now", "--wait")...)
			AddReportEntry(args[0], fmt.Sprintf("%s, with the start of curlctl", time.Since(began)))
			Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("rules.json", body))
			w.EventuallyQuiet(ctx)
			Expect([]int{page.Hits() - gets, changed(ctx) - writes}).To(Equal([]int{0, 1}), "GETs and writes")
			return out
		}
		cm.EventuallyHasData(ctx, "rules.json", "one")
		for _, body := range []string{"two", "three"} {
			page.Says(body)
			curlctl("refetch")
			cm.EventuallyHasData(ctx, "rules.json", body)
		}
		Expect(curlctl("history")).To(And(ContainSubstring("current"), ContainSubstring(pipeline.Digest("one")[:12])))
		Expect(curlctl("diff", "rules.json")).To(And(ContainSubstring("-two"), ContainSubstring("+three")))

		page.Fails(500)
		Expect(pins("two", "rollback", "rules.json", "--to", "2")).To(
			ContainSubstring("x-kv8s.io/curl-sha256: rules.json=" + pipeline.Digest("two")))

		page.Says("four")
		for range 2 {
			curlctl("refetch")
			Eventually(func() string { return cm.Status(ctx, "rules.json").Available }).Should(Equal(pipeline.Digest("four")))
			w.EventuallyQuiet(ctx)
		}
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("rules.json", "two"))
		Expect(cm.Events(ctx, "UpdateAvailable")).To(HaveLen(1))
		pins("four", "accept", "rules.json")
		page.Says("five")
		// Within a second, a fetcher gives the response of an earlier GET to equal requests.
		Eventually(func() time.Duration { return time.Since(page.Arrivals()[page.Hits()-1]) }).
			Should(BeNumerically(">", 1500*time.Millisecond))
		curlctl("unpin", "rules.json", "--now")
		cm.EventuallyHasData(ctx, "rules.json", "five")
	})
})
