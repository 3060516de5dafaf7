package compose_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A Watcher", func() {
	It("from the manifests is Ready from the start", func(ctx SpecContext) {
		Eventually(ctx, func() (string, error) {
			return tryDocker(ctx, "compose", "run", "--rm", "--no-TTY", "kubectl", "get", "watchers", "jokes", "--no-headers")
		}).Should(MatchRegexp(`^jokes +True +True +1/1 +jokes-config `))
	})
})

// recovery is how long interrupted work may take: after AckWait, 30 s, it is redelivered to another
// container.
const recovery = 3 * time.Minute

var _ = Describe("Under load,", Ordered, func() {
	DescribeTable("killing a container loses nothing:", func(ctx SpecContext, service string) {
		load := i.Load(ctx, "killed-"+service, 40)
		compose(ctx, "kill", "--signal", "SIGKILL", service)
		compose(ctx, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", "--wait", service)
		load.EventuallyFills(ctx, 40, recovery)
	},
		Entry(nil, "watcher"),
		Entry(nil, "writer"),
		Entry(nil, "nats"),
		Entry(nil, "kube-apiserver"),
	)

	It("NATS denies nothing, and no service panics", func(ctx SpecContext) {
		for _, service := range []string{"nats", "watcher", "fetcher", "writer", "keeper"} {
			logs := compose(ctx, "logs", "--no-color", "--no-log-prefix", service)
			for _, word := range []string{"Violation", "violation", "panic:", "fatal error:"} {
				Expect(logs).NotTo(ContainSubstring(word), service)
			}
		}
	})
})
