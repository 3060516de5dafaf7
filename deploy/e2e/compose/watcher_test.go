package compose_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = Describe("A Watcher", func() {
	It("becomes Ready with its ConfigMap, as kubectl shows", func(ctx SpecContext) {
		client := suitetest.Must(dynamic.NewForConfig(i.Cluster.Config))
		page := i.Page("/rules").Says(ctx, "the rules")
		rules := world.WatcherOf("rules", `configData: {LEVEL: warn}, sources: [{key: rules, url: "`+page.URL()+`"}]`)
		watchers := client.Resource(watchv1.Resource()).Namespace(i.Namespace)
		suitetest.Must(watchers.Create(ctx, rules, metav1.CreateOptions{}))
		DeferCleanup(func(ctx SpecContext) { // there is no garbage collector
			Expect(watchers.Delete(ctx, "rules", metav1.DeleteOptions{})).To(Succeed())
		})
		Eventually(ctx, func() (string, error) {
			return tryDocker(ctx, "compose", "run", "--rm", "--no-TTY", "kubectl", "get", "watchers", "rules", "--namespace",
				i.Namespace, "--no-headers")
		}).Should(MatchRegexp(`^rules +True +True +1/1 +rules-config `))
		cm := suitetest.Must(i.Cluster.Client.CoreV1().ConfigMaps(i.Namespace).Get(ctx, "rules-config", metav1.GetOptions{}))
		Expect(cm.Data).To(Equal(map[string]string{"LEVEL": "warn", "rules": "the rules"}))
	})

	It("from the manifests becomes Ready", func(ctx SpecContext) {
		Eventually(ctx, func() (string, error) {
			return tryDocker(ctx, "compose", "run", "--rm", "--no-TTY", "kubectl", "get", "watchers", "jokes", "--no-headers")
		}).Should(MatchRegexp(`^jokes +True +True +1/1 +jokes-config `))
	})
})

// recovery is how long interrupted work may take. It is redelivered to another container after an AckWait of 30
// s.
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
