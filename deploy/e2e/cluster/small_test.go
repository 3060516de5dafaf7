package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/release"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// smallStart is the maximum time from the first pod of the small form until all are ready.
const smallStart = 15 * time.Second

var _ = Describe("The small form", Ordered, func() {
	var small *release.Release
	BeforeAll(func(ctx SpecContext) {
		text := suitetest.Must(os.ReadFile(fromRoot("deploy/chart/values-small.yaml")))
		values := map[string]any{}
		Expect(yaml.Unmarshal(text, &values)).To(Succeed())
		values["image"] = map[string]any{"tag": version}
		values["annotations"] = map[string]any{"minRefresh": "2s"}
		fetcher, is := values["fetcher"].(map[string]any)
		Expect(is).To(BeTrue())
		maps.Copy(fetcher, map[string]any{"egress": map[string]any{"allowCIDRs": origin.CIDRs}})
		small = &release.Release{
			Cluster: cluster, Name: "curl-me-that", Chart: chartPath(), Namespace: namespace(ctx, "curl-me-that-small-"),
			Values: values,
		}
		DeferCleanup(func(ctx SpecContext) { small.Uninstall(ctx) })
	})

	It("is ready within 15 s, with 4 pods that request at most 100m CPU and 192 MiB", func(ctx SpecContext) {
		// The time is the chart's, if not every attempt is slowed down by other load.
		took := startup(ctx, small)
		for attempt := 1; took > smallStart && attempt < 3; attempt++ {
			small.Uninstall(ctx)
			took = startup(ctx, small)
		}
		AddReportEntry("time", fmt.Sprintf("all pods ready after %s", took))
		Expect(took).To(BeNumerically("<=", smallStart))

		Eventually(ctx, func() []corev1.Pod { return small.Pods(ctx, "") }).
			WithTimeout(3*time.Minute).Should(HaveLen(4), "the Jobs are removed")
		cpu, memory := resource.Quantity{}, resource.Quantity{}
		for _, pod := range small.Pods(ctx, "") {
			for _, container := range pod.Spec.Containers {
				cpu.Add(*container.Resources.Requests.Cpu())
				memory.Add(*container.Resources.Requests.Memory())
			}
		}
		AddReportEntry("requests", fmt.Sprintf("%s CPU, %s", &cpu, &memory))
		Expect(cpu.Cmp(resource.MustParse("100m"))).To(BeNumerically("<=", 0), cpu.String())
		Expect(memory.Cmp(resource.MustParse("192Mi"))).To(BeNumerically("<=", 0), memory.String())
	})

	It("passes the suite of an installed release", passesInstalled)

	It("creates the streams again if the pod of NATS is replaced", func(ctx SpecContext) {
		small.Kill(ctx, small.Pods(ctx, release.NATS)[0])
		small.EventuallyRuns(ctx, release.NATS, 1)
		i := installation.Open(ctx)
		page := i.Page("/afterwards").Says(ctx, "filled")
		i.Create(ctx, "afterwards", world.Asking("mydata="+page.URL())).
			EventuallyHasDataWithin(ctx, recovery, "mydata", "filled")
	})

	Context("with credentials of teams and a proxy with a private address", Ordered, func() {
		usesCredentials(func() *release.Release { return small })
	})
})

// startup installs a release and returns the time from its first pod until the last of its services
// was ready.
func startup(ctx context.Context, r *release.Release) time.Duration {
	GinkgoHelper()
	r.Install(ctx)
	var first, last time.Time
	for _, component := range []string{release.NATS, release.Watcher, release.Fetcher, release.Writer} {
		r.EventuallyRuns(ctx, component, 1)
		for _, pod := range r.Pods(ctx, component) {
			if created := pod.CreationTimestamp.Time; first.IsZero() || created.Before(first) {
				first = created
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.LastTransitionTime.After(last) {
					last = condition.LastTransitionTime.Time
				}
			}
		}
	}
	return last.Sub(first)
}
