package acceptance_test

import (
	"fmt"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A host that recovers", func() {
	It("has its 100 ConfigMaps replayed, each with one write", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--max-attempts=2", "--recheck=1h"}}})
		const n = 100
		pages := w.Origin.Pages(n)
		objects := make([]*world.ConfigMap, n)
		for i, page := range pages {
			page.Fails(503)
			objects[i] = w.Create(ctx, fmt.Sprintf("cm-%03d", i), world.Asking("my.data="+page.URL()))
		}
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Failures, "curl.failure.>") }).
			WithTimeout(2 * time.Minute).Should(Equal(n))
		w.EventuallyQuiet(ctx)
		w.EventuallyCaughtUp(ctx)
		before := make([]int, n)
		for i, page := range pages {
			before[i] = w.History.Writes(objects[i].Name)
			page.Says(fmt.Sprintf("body %d", i))
		}

		out, err := exec.CommandContext(ctx, w.Program("curlctl"), "replay", "--nats-url", w.NATS.URL(),
			"--host", "localhost", "--wait", "--timeout", "3m").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(And(ContainSubstring("Replayed 100 failures."), ContainSubstring("Outcome: 100 fetched."),
			ContainSubstring("The writer has handled all of them.")))

		for i, object := range objects {
			object.EventuallyHasData(ctx, "my.data", fmt.Sprintf("body %d", i))
			object.EventuallyReports(ctx, "my.data", "")
		}
		w.EventuallyQuiet(ctx)
		w.EventuallyCaughtUp(ctx)
		for i, object := range objects {
			Expect(w.History.Writes(object.Name)-before[i]).To(Equal(1), "writes to %s", object.Name)
		}
	})
})
