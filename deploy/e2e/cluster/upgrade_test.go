package cluster_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// gap is the maximum wait for data during an upgrade.
const gap = 30 * time.Second

// upgradeSpecs adds the spec of helm upgrade.
func upgradeSpecs() {
	It("upgrades under load without an outage", func(ctx SpecContext) {
		nats := chart.Pods(ctx, installation.NATS)[0]
		traffic := visitor.Traffic(ctx, "upgraded")
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
}

// uninstallSpecs adds the spec of helm uninstall and a new install.
func uninstallSpecs() {
	It("leaves all data when uninstalled under load, and does not rewrite it when reinstalled", func(ctx SpecContext) {
		settled := load(ctx, "settled", 20)
		settled.ShouldEnd(ctx, recovery)
		traffic := visitor.Traffic(ctx, "uninstalled")
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
