package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// recovery is how long interrupted work may take. It is redelivered to another pod after an AckWait of 30 s.
const recovery = 3 * time.Minute

// disruptionSpecs adds specs that scale and kill pods under load.
func disruptionSpecs() {
	It("keeps working while fetchers are scaled from 1 to 4, to none and to 2", func(ctx SpecContext) {
		fetchers := func(n int) {
			GinkgoHelper()
			chart.Scale(ctx, installation.Fetcher, n)
			chart.EventuallyRuns(ctx, installation.Fetcher, n)
		}
		fetchers(0)
		queued := load(ctx, "queued", 60)
		traffic := visitor.Traffic(ctx, "scaled")
		Consistently(ctx, queued.Filled).Should(BeZero(), "no fetcher runs")

		fetchers(1)
		fetchers(4)
		Eventually(ctx, traffic.Done).Should(BeNumerically(">", 0))
		chart.Scale(ctx, installation.Fetcher, 0)
		between := load(ctx, "between", 30)
		chart.EventuallyRuns(ctx, installation.Fetcher, 0)
		waiting := load(ctx, "waiting", 20)
		Consistently(ctx, waiting.Filled).Should(BeZero(), "no fetcher runs")

		fetchers(2)
		queued.ShouldEnd(ctx, recovery)
		between.ShouldEnd(ctx, recovery)
		waiting.ShouldEnd(ctx, recovery)
		traffic.ShouldEnd(ctx)
	})

	DescribeTable("loses nothing when each pod is killed", func(ctx SpecContext, component string) {
		before := load(ctx, "before-"+component, 10)
		before.ShouldEnd(ctx, recovery)
		traffic := visitor.Traffic(ctx, "killed-"+component)
		pods := chart.Pods(ctx, component)
		for _, pod := range pods {
			busy := traffic.Done()
			Eventually(ctx, traffic.Done).Should(BeNumerically(">", busy), "the load makes progress")
			chart.Kill(ctx, pod)
			chart.EventuallyReplaced(ctx, component, len(pods), pod)
		}
		after := load(ctx, "after-"+component, 10)
		after.ShouldEnd(ctx, recovery)
		traffic.ShouldEnd(ctx)
		before.ShouldEnd(ctx, recovery)
		// This holds even if NATS lost its data with its pod.
		for _, page := range before.Pages {
			Expect(page.Hits(ctx)).To(Equal(1), "held keys are not fetched again")
		}
	},
		Entry(nil, installation.NATS),
	)
}

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
			Expect(page.Hits(ctx)).To(Equal(1), "held keys are not fetched again")
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

// ours matches one of our images in a manifest, and its tag.
var ours = regexp.MustCompile(`(image: ghcr\.io/kv8s/curl-me-that/[a-z]+):(\S+)`)

// The manifests of two versions differ only in the tags of their images.
var _ = Describe("An upgrade with kubectl apply", func() {
	It("and its rollback lose nothing, and fetch and write nothing again", func(ctx SpecContext) {
		shouldBeFresh(ctx)
		i := installation.Open(ctx)
		install := filepath.Join(suitetest.Must(manifest.Manifests(ctx, version)), "install.yaml")
		var loads []*installation.Load
		for _, stage := range []struct{ name, tag string }{{"first", version}, {"upgraded", next}, {"rolled-back", version}} {
			By(stage.name)
			objects := admitOrigin(decodeAs(install, stage.tag))
			applyManifests(ctx, objects)
			eventuallyRolledOut(ctx, objects)
			loads = append(loads, i.Load(ctx, stage.name, 10))
			for _, load := range loads {
				load.ShouldEnd(ctx, recovery)
				for _, page := range load.Pages {
					Expect(page.Hits(ctx)).To(Equal(1), "filled keys are not fetched again")
				}
			}
		}
		i.ShouldKeepPromises(ctx)
	})
})

// decodeAs reads manifests as if they were of a version: with its images, and new names for Jobs, which the
// chart derives from their content.
func decodeAs(path, version string) []*unstructured.Unstructured {
	GinkgoHelper()
	file := suitetest.Must(os.ReadFile(path))
	objects := suitetest.Must(controlplane.Decode(ours.ReplaceAll(file, []byte("$1:"+version))))
	for _, o := range objects {
		if o.GetKind() == "Job" {
			o.SetName(o.GetName() + "-" + version)
		}
	}
	return objects
}

// eventuallyRolledOut waits until all Deployments run the pods of the manifests.
func eventuallyRolledOut(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		Eventually(ctx, func(g Gomega) {
			d, err := cluster.Client.AppsV1().Deployments(manifestNamespace).Get(ctx, o.GetName(), metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
			g.Expect(d.Status).To(And(
				HaveField("UpdatedReplicas", *d.Spec.Replicas), HaveField("AvailableReplicas", *d.Spec.Replicas),
				HaveField("Replicas", *d.Spec.Replicas)))
		}).WithTimeout(recovery).Should(Succeed(), o.GetName())
	}
}
