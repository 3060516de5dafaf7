package cluster_test

import (
	"cmp"
	"context"
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

// ours matches an image of ours in a manifest, and what follows its name.
var ours = regexp.MustCompile(`(image: ghcr\.io/kv8s/curl-me-that/[a-z]+):(\S+)`)

// An installation by the manifests of an earlier version, that is brought to those of
// today and back by kubectl apply.
var _ = Describe("The manifests of v0", func() {
	It("loses, fetches again and writes again nothing when an earlier version is replaced and comes back", func(ctx SpecContext) {
		_, err := cluster.Client.CoreV1().Namespaces().Get(ctx, manifestNamespace, metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "there is a namespace %s already: the cluster is not fresh", manifestNamespace)
		earlierVersion := cmp.Or(os.Getenv("CURLMETHAT_E2E_EARLIER"), version)
		AddReportEntry("images of v0", earlierVersion)
		earlier := admitOrigin(decodeAs("deploy/e2e/cluster/testdata/v0/install.yaml", earlierVersion))
		today := admitOrigin(decodeAs("deploy/kubernetes/install.yaml", version))
		applier, err := access.NewApplier(cluster.Config, manifest.Manager)
		Expect(err).NotTo(HaveOccurred())
		shown = append(shown, manifestNamespace)
		DeferCleanup(func(ctx SpecContext) {
			Expect(manifest.Delete(ctx, applier, "", today)).To(Succeed())
			Expect(manifest.Delete(ctx, applier, "", earlier)).To(Succeed())
			remove(ctx, manifestNamespace)
		})
		i := installation.Open(ctx)
		var loads []*installation.Load
		for _, stage := range []struct {
			name, tag string
			objects   []*unstructured.Unstructured
		}{{"v0", earlierVersion, earlier}, {"today", version, today}, {"v0-again", earlierVersion, earlier}} {
			By(stage.name)
			Expect(applier.Apply(ctx, "", stage.objects...)).To(Succeed())
			eventuallyRolledOut(ctx, stage.objects)
			loads = append(loads, i.Load(ctx, stage.name, 10))
			for _, load := range loads {
				load.ShouldEnd(ctx, recovery)
				for _, page := range load.Pages {
					Expect(page.Hits(ctx)).To(Equal(1), "what is there is not fetched again")
				}
			}
		}
		i.ShouldKeepPromises(ctx)
	})
})

// decodeAs reads manifests as they are of a version: with its images, and Jobs with
// names of its own, since the chart makes these of what is in them.
func decodeAs(path, version string) []*unstructured.Unstructured {
	GinkgoHelper()
	file, err := os.ReadFile(fromRoot(path))
	Expect(err).NotTo(HaveOccurred())
	objects, err := access.Decode(ours.ReplaceAll(file, []byte("$1:"+version)))
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		if o.GetKind() == "Job" {
			o.SetName(o.GetName() + "-" + version)
		}
	}
	return objects
}

// eventuallyRolledOut waits until the pods of all Deployments are those of the manifests.
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
				HaveField("UpdatedReplicas", *d.Spec.Replicas), HaveField("AvailableReplicas", *d.Spec.Replicas), HaveField("Replicas", *d.Spec.Replicas)))
		}).WithTimeout(recovery).Should(Succeed(), o.GetName())
	}
}
