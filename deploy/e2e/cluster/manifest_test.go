package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	// manifestNamespace and manifestFetcher are what install.yaml calls them.
	manifestNamespace = "curl-me-that"
	manifestFetcher   = "curl-me-that-fetcher"
	// sampleURL is that of the valid sample, for which the origin stands in.
	sampleURL = "http://localhost:8642/joke"
	// manifestVersion is the tag of the images in install.yaml.
	manifestVersion = "dev"
)

var _ = Describe("install.yaml", func() {
	It("and the two samples work in a fresh cluster", func(ctx SpecContext) {
		if version != manifestVersion {
			Skip("install.yaml names images of version " + manifestVersion + ", and those of " + version + " are to be tested")
		}
		_, err := cluster.Client.CoreV1().Namespaces().Get(ctx, manifestNamespace, metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "there is a namespace %s already: the cluster is not fresh", manifestNamespace)
		client, err := manifest.NewClient(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		objects := decode("deploy/kubernetes/install.yaml")
		shown = append(shown, manifestNamespace)
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.Delete(ctx, "", objects)).To(Succeed())
			remove(ctx, manifestNamespace)
		})
		i := installation.Open(ctx)
		joke := i.Page("/joke").Says(ctx, "A ConfigMap walks into a bar.")

		since := time.Now()
		Expect(client.Apply(ctx, "", objects)).To(Succeed())
		admitOrigin(ctx)
		invalid := apply(ctx, i, decode("deploy/samples/config-map-invalid.yaml")[0])
		valid := apply(ctx, i, decode("deploy/samples/config-map-valid.yaml")[0], sampleURL, joke.URL())
		valid.EventuallyHasDataWithin(ctx, 3*time.Minute, "joke", "A ConfigMap walks into a bar.")
		invalid.EventuallyTellsWithin(ctx, 3*time.Minute, "InvalidAnnotation")
		AddReportEntry("time", fmt.Sprintf("from kubectl apply to data and Event: %s", time.Since(since).Round(100*time.Millisecond)))

		Expect(invalid.Events(ctx)[0].Note).To(Equal("annotation value 'mydata=this isn't a url' does not match expected format key=url"))
		Expect(valid.Writes(ctx)).To(Equal(1))
		Expect(invalid.Writes(ctx)).To(BeZero())
	})
})

func decode(path string) []*unstructured.Unstructured {
	GinkgoHelper()
	file, err := os.ReadFile(fromRoot(path))
	Expect(err).NotTo(HaveOccurred())
	objects, err := manifest.Decode(file)
	Expect(err).NotTo(HaveOccurred())
	return objects
}

// apply creates a sample; replacements are pairs of what to replace in its
// annotation, and by what.
func apply(ctx context.Context, i *installation.Installation, sample *unstructured.Unstructured, replacements ...string) *world.ConfigMap {
	GinkgoHelper()
	asks := sample.GetAnnotations()[annotation.DefaultKey]
	return i.Create(ctx, sample.GetName(), world.Asking(strings.NewReplacer(replacements...).Replace(asks)))
}

// admitOrigin opens the fetchers of install.yaml to the origin, which has a
// private address, as an operator would.
func admitOrigin(ctx context.Context) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{
			"name": "fetcher",
			"env":  []any{map[string]any{"name": "CURLMETHAT_ALLOW_CIDR", "value": strings.Join(origin.CIDRs, ",")}},
		}},
	}}}})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.Client.AppsV1().Deployments(manifestNamespace).
		Patch(ctx, manifestFetcher, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	peers := []networkingv1.NetworkPolicyPeer{}
	for _, cidr := range origin.CIDRs {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
	}
	_, err = cluster.Client.NetworkingV1().NetworkPolicies(manifestNamespace).Create(ctx, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "origin"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "fetcher"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}
