package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// ours matches one of our images in a manifest, and its tag.
var ours = regexp.MustCompile(`(image: ghcr\.io/kv8s/curl-me-that/[a-z]+):(\S+)`)

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

const (
	// manifestNamespace and manifestFetcher are the names in install.yaml.
	manifestNamespace = "curl-me-that"
	manifestFetcher   = "curl-me-that-fetcher"
	// sampleURL is the URL in the valid sample. The specs replace it.
	sampleURL = "https://v2.jokeapi.dev/joke/Programming?format=txt"
)

// The manifests of two versions differ only in the tags of their images.
var _ = Describe("install.yaml", func() {
	It("fills the two samples in a fresh cluster, and an upgrade and its rollback fetch and write nothing again", func(
		ctx SpecContext,
	) {
		shouldBeFresh(ctx)
		i := installation.Open(ctx)
		install := filepath.Join(suitetest.Must(manifest.Manifests(ctx, version)), "install.yaml")
		joke := i.Origin.Page("/joke").Says("A ConfigMap walks into a bar.")
		var valid, invalid *world.ConfigMap
		fillSamples := func(since time.Time) {
			invalid = apply(ctx, i, decode(fromRoot("deploy/samples/config-map-invalid.yaml"))[0])
			valid = apply(ctx, i, decode(fromRoot("deploy/samples/config-map-valid.yaml"))[0], sampleURL, joke.URL())
			valid.Within(recovery).EventuallyHasData(ctx, "joke", "A ConfigMap walks into a bar.")
			invalid.Within(recovery).EventuallyHasEvents(ctx, "InvalidAnnotation")
			AddReportEntry("time", fmt.Sprintf("from kubectl apply to data and Event: %s",
				time.Since(since).Round(100*time.Millisecond)))
			Expect(invalid.Events(ctx)[0].Note).
				To(Equal("annotation value 'mydata=this isn't a url' does not match expected format key=url"))
			Eventually(ctx, func() int { return i.History.Writes(invalid.Name) }).Should(Equal(1), "the status")
		}

		var loads []*world.Load
		for _, stage := range []struct{ name, tag string }{{"first", version}, {"upgraded", next}, {"rolled-back", version}} {
			By(stage.name)
			since := time.Now()
			objects := admitOrigin(decodeAs(install, stage.tag))
			applyManifests(ctx, objects)
			if valid == nil {
				fillSamples(since)
			}
			eventuallyRolledOut(ctx, objects)
			loads = append(loads, i.Load(ctx, stage.name, 10))
			for _, load := range loads {
				load.ShouldEnd(ctx, recovery)
				for _, page := range load.Pages {
					Expect(page.Hits()).To(Equal(1), "filled keys are not fetched again")
				}
			}
		}
		Expect(valid.Writes(ctx)).To(Equal(1))
		Expect(invalid.Writes(ctx)).To(Equal(1))
		i.ShouldKeepPromises(ctx)
	})
})

// shouldBeFresh checks that the namespace of the manifests does not exist.
func shouldBeFresh(ctx context.Context) {
	GinkgoHelper()
	Expect(world.ErrorOf(cluster.Client.CoreV1().Namespaces().Get(ctx, manifestNamespace, metav1.GetOptions{}))).
		To(MatchError(apierrors.IsNotFound, "not found"), "the cluster already has a namespace %s", manifestNamespace)
	shown = append(shown, manifestNamespace)
}

// applyManifests applies manifests like kubectl apply, until the end of the spec.
func applyManifests(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	applier := suitetest.Must(controlplane.NewApplier(cluster.Config, manifest.Manager))
	DeferCleanup(func(ctx SpecContext) {
		Expect(manifest.Delete(ctx, applier, "", objects)).To(Succeed())
		remove(ctx, manifestNamespace)
	})
	Expect(applier.Apply(ctx, "", objects...)).To(Succeed())
}

func decode(path string) []*unstructured.Unstructured {
	GinkgoHelper()
	return suitetest.Must(controlplane.Decode(suitetest.Must(os.ReadFile(path))))
}

// apply creates a sample. replacements are pairs of old and new text in its annotation.
func apply(ctx context.Context, i *world.World, sample *unstructured.Unstructured,
	replacements ...string,
) *world.ConfigMap {
	GinkgoHelper()
	asks := sample.GetAnnotations()[annotation.DefaultKey]
	return i.Create(ctx, sample.GetName(), world.Asking(strings.NewReplacer(replacements...).Replace(asks)))
}

// admitOrigin lets the fetchers of install.yaml reach the origin, which has a private address. Do this before
// they fetch the sample, because a denied address is not retried soon.
func admitOrigin(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	GinkgoHelper()
	admitted := false
	for _, o := range objects {
		if o.GetKind() != "Deployment" || o.GetName() != manifestFetcher {
			continue
		}
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		Expect(err).NotTo(HaveOccurred())
		fetcher, is := containers[0].(map[string]any)
		Expect(is).To(BeTrue())
		env, _, err := unstructured.NestedSlice(fetcher, "env")
		Expect(err).NotTo(HaveOccurred())
		fetcher["env"] = append(env,
			map[string]any{"name": "CURLMETHAT_ALLOW_CIDR", "value": strings.Join(origin.CIDRs, ",")})
		Expect(unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")).To(Succeed())
		admitted = true
	}
	Expect(admitted).To(BeTrue(), "install.yaml has a Deployment %s", manifestFetcher)
	return append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"name": "origin", "namespace": manifestNamespace},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/component": "fetcher"}},
			"policyTypes": []any{"Egress"},
			"egress":      []any{map[string]any{"to": originPeers()}},
		},
	}})
}

// originPeers returns the addresses of the origin as peers of a NetworkPolicy.
func originPeers() []any {
	peers := []any{}
	for _, cidr := range origin.CIDRs {
		peers = append(peers, map[string]any{"ipBlock": map[string]any{"cidr": cidr}})
	}
	return peers
}
