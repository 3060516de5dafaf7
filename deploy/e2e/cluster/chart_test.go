package cluster_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// chart and visitor are shared by the specs of the chart: the release, and a world of ConfigMaps around it.
var (
	chart   *installation.Release
	visitor *installation.Installation
)

var _ = Describe("The chart", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		chart = &installation.Release{
			Cluster: cluster, Name: "curl-me-that", Chart: chartPath(),
			Namespace: namespace(ctx, "curl-me-that-chart-"),
			Values: map[string]any{
				"image":       map[string]any{"tag": version},
				"annotations": map[string]any{"minRefresh": "2s"},
				"fetcher":     map[string]any{"concurrency": 4, "egress": map[string]any{"allowCIDRs": origin.CIDRs}},
			},
		}
		DeferCleanup(func(ctx SpecContext) { chart.Uninstall(ctx) })
		visitor = installation.Open(ctx)
		visitor.Create(ctx, "bystander", world.Holding("mydata", "not requested"))
	})
	AfterEach(func(ctx SpecContext) {
		if !CurrentSpecReport().Failed() {
			checkPromises(ctx)
		}
	})

	It("installs in a namespace with the restricted standard", func(ctx SpecContext) {
		chart.Install(ctx)
		for component, n := range map[string]int{
			installation.NATS: 1, installation.Watcher: 2, installation.Fetcher: 2, installation.Writer: 2,
		} {
			chart.EventuallyRuns(ctx, component, n)
		}
		privileged := corev1.Container{
			Name: "any", Image: registry + "origin:" + version, SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		}
		Expect(world.ErrorOf(cluster.Client.CoreV1().Pods(chart.Namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "privileged"}, Spec: corev1.PodSpec{Containers: []corev1.Container{privileged}},
		}, metav1.CreateOptions{}))).To(MatchError(apierrors.IsForbidden, "is forbidden"), "the standard is enforced")
	})

	permissionSpecs()

	It("passes the suite of an installed release", runInstalledSuite)

	It("passes its own tests", func(ctx SpecContext) { chart.Test(ctx) })

	upgradeSpecs()
	uninstallSpecs()
})

// checkPromises checks the history of all ConfigMaps, the logs and the pods so far.
func checkPromises(ctx context.Context) {
	GinkgoHelper()
	visitor.ShouldKeepPromises(ctx)
	for _, pod := range chart.Pods(ctx, "") {
		if pod.Status.Phase != corev1.PodRunning {
			continue
		}
		text := chart.Log(ctx, pod)
		for _, word := range []string{"panic:", "fatal error:", "DATA RACE", "Violation", "forbidden"} {
			Expect(text).NotTo(ContainSubstring(word), "log of %s", pod.Name)
		}
		for _, status := range pod.Status.ContainerStatuses {
			if ended := status.LastTerminationState.Terminated; ended != nil {
				Expect(ended.Reason).NotTo(Equal("OOMKilled"), "%s", pod.Name)
			}
		}
	}
}

// load creates a load and does not wait for it.
func load(ctx context.Context, name string, n int) *installation.Load {
	GinkgoHelper()
	return visitor.Load(ctx, fmt.Sprintf("load-%s", name), n)
}

// permissionSpecs adds specs of permissions and metrics.
func permissionSpecs() {
	It("exposes metrics of every service", func(ctx SpecContext) {
		for _, component := range world.Services() {
			for _, pod := range chart.Pods(ctx, component) {
				Expect(chart.Metrics(ctx, pod)).To(ContainSubstring("\ncurlmethat_"+component+"_"), pod.Name)
			}
		}
	})
}
