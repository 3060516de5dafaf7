package cluster_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// chart and visitor are shared by the specs of the chart: the release, and a world of ConfigMaps around it.
var (
	chart   *installation.Release
	visitor *world.World
)

// gap is the maximum wait for data during an upgrade.
const gap = 30 * time.Second

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

	It("exposes metrics of every service", func(ctx SpecContext) {
		for _, component := range world.Services() {
			for _, pod := range chart.Pods(ctx, component) {
				Expect(chart.Metrics(ctx, pod)).To(ContainSubstring("\ncurlmethat_"+component+"_"), pod.Name)
			}
		}
	})

	It("passes the suite of an installed release", runInstalledSuite)

	It("passes its own tests", func(ctx SpecContext) { chart.Test(ctx) })

	It("upgrades under load without an outage", func(ctx SpecContext) {
		nats := chart.Pods(ctx, installation.NATS)[0]
		traffic := installation.Start(ctx, visitor, "upgraded")
		Eventually(ctx, traffic.Done).Should(BeNumerically(">", 0))
		chart.Values["image"] = map[string]any{"tag": next}
		chart.Install(ctx)
		for _, component := range world.Services() {
			chart.EventuallyRuns(ctx, component, 2)
			for _, pod := range chart.Pods(ctx, component) {
				Expect(pod.Spec.Containers[0].Image).To(Equal(registry + component + ":" + next))
			}
		}
		busy := traffic.Done()
		Eventually(ctx, traffic.Done).Should(BeNumerically(">", busy), "the new pods work")
		Expect(traffic.ShouldEnd(ctx)).To(BeNumerically("<", gap), "longest wait for data")
		Expect(chart.Pods(ctx, installation.NATS)[0].UID).To(Equal(nats.UID), "NATS need not restart for new services")
	})

	It("leaves all data when uninstalled under load, and does not rewrite it when reinstalled", func(ctx SpecContext) {
		settled := visitor.Load(ctx, "load-settled", 20)
		settled.ShouldEnd(ctx, recovery)
		traffic := installation.Start(ctx, visitor, "uninstalled")
		Eventually(ctx, traffic.Done).Should(BeNumerically(">", 4))
		chart.Uninstall(ctx)
		Eventually(ctx, func() int { return len(chart.Pods(ctx, "")) }).WithTimeout(recovery).
			Should(BeZero(), "pods of the release")
		cleared(ctx)
		visitor.ShouldKeepPromises(ctx)
		Expect(settled.Filled()).To(Equal(20))

		chart.Install(ctx)
		traffic.ShouldEnd(ctx)
		settled.ShouldEnd(ctx, recovery)
		for _, page := range settled.Pages {
			Expect(page.Hits()).To(Equal(1), "held keys are not fetched again")
		}
	})
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

// cleared checks that the release left nothing outside its namespace. Such objects have the namespace in their
// name.
func cleared(ctx context.Context) {
	GinkgoHelper()
	roles := suitetest.Must(cluster.Client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{}))
	bindings := suitetest.Must(cluster.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{}))
	policies := suitetest.Must(cluster.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().
		List(ctx, metav1.ListOptions{}))
	leftover := ContainElement(HaveField("Name", ContainSubstring(chart.Namespace)))
	Expect(roles.Items).NotTo(leftover)
	Expect(bindings.Items).NotTo(leftover)
	Expect(policies.Items).NotTo(leftover)
}
