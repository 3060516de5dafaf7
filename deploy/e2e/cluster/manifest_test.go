package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

const (
	// manifestNamespace and manifestFetcher are the names in install.yaml.
	manifestNamespace = "curl-me-that"
	manifestFetcher   = "curl-me-that-fetcher"
	// sampleURL is the URL in the valid sample. The specs replace it.
	sampleURL = "https://v2.jokeapi.dev/joke/Programming?format=txt"
)

var _ = Describe("install.yaml", func() {
	It("installs in a fresh cluster and fills the two samples", func(ctx SpecContext) {
		install := filepath.Join(suitetest.Must(manifest.Manifests(ctx, version)), "install.yaml")
		for _, other := range tagsIn(install) {
			if other != version {
				Skip(install + " has images with the tag " + other + ", but the nodes have images with the tag " + version)
			}
		}
		shouldBeFresh(ctx)
		i := installation.Open(ctx)
		joke := i.Page("/joke").Says(ctx, "A ConfigMap walks into a bar.")

		since := time.Now()
		applyManifests(ctx, admitOrigin(decode(install)))
		invalid := apply(ctx, i, decode(fromRoot("deploy/samples/config-map-invalid.yaml"))[0])
		valid := apply(ctx, i, decode(fromRoot("deploy/samples/config-map-valid.yaml"))[0], sampleURL, joke.URL())
		valid.EventuallyHasDataWithin(ctx, 3*time.Minute, "joke", "A ConfigMap walks into a bar.")
		invalid.EventuallyHasEventsWithin(ctx, 3*time.Minute, "InvalidAnnotation")
		AddReportEntry("time", fmt.Sprintf("from kubectl apply to data and Event: %s",
			time.Since(since).Round(100*time.Millisecond)))

		Expect(invalid.Events(ctx)[0].Note).
			To(Equal("annotation value 'mydata=this isn't a url' does not match expected format key=url"))
		Expect(valid.Writes(ctx)).To(Equal(1))
		Eventually(ctx, func() int { return i.History.Writes(invalid.Name) }).Should(Equal(1), "the status")
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

// tagsIn returns the tags and digests of our images in a manifest.
func tagsIn(path string) []string {
	GinkgoHelper()
	file := suitetest.Must(os.ReadFile(path))
	var tags []string
	for _, found := range ours.FindAllSubmatch(file, -1) {
		tags = append(tags, string(found[2]))
	}
	Expect(tags).NotTo(BeEmpty(), "%s has images of ours", path)
	return tags
}

func decode(path string) []*unstructured.Unstructured {
	GinkgoHelper()
	return suitetest.Must(controlplane.Decode(suitetest.Must(os.ReadFile(path))))
}

// apply creates a sample. replacements are pairs of old and new text in its annotation.
func apply(ctx context.Context, i *installation.Installation, sample *unstructured.Unstructured,
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
