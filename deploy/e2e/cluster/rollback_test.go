package cluster_test

import (
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
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// ours matches one of our images in a manifest, with its tag.
var ours = regexp.MustCompile(`(image: ghcr\.io/kv8s/curl-me-that/[a-z]+):(\S+)`)

// The manifests of two versions differ in the tag of their images.
var _ = Describe("An upgrade with kubectl apply", func() {
	It("loses nothing when it is rolled back, and fetches and writes nothing again", func(ctx SpecContext) {
		_, err := cluster.Client.CoreV1().Namespaces().Get(ctx, manifestNamespace, metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the cluster already has a namespace %s", manifestNamespace)
		applier := suitetest.Must(access.NewApplier(cluster.Config, manifest.Manager))
		shown = append(shown, manifestNamespace)
		i := installation.Open(ctx)
		var loads []*installation.Load
		for _, stage := range []struct{ name, tag string }{{"first", version}, {"upgraded", next}, {"rolled-back", version}} {
			By(stage.name)
			objects := admitOrigin(decodeAs("deploy/kubernetes/install.yaml", stage.tag))
			DeferCleanup(func(ctx SpecContext) {
				Expect(manifest.Delete(ctx, applier, "", objects)).To(Succeed())
				remove(ctx, manifestNamespace)
			})
			Expect(applier.Apply(ctx, "", objects...)).To(Succeed())
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

// decodeAs reads manifests as those of a version: with its images and with new names for Jobs, as
// the chart derives these from their content.
func decodeAs(path, version string) []*unstructured.Unstructured {
	GinkgoHelper()
	file := suitetest.Must(os.ReadFile(fromRoot(path)))
	objects := suitetest.Must(access.Decode(ours.ReplaceAll(file, []byte("$1:"+version))))
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
