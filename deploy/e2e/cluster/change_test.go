// Package cluster_test installs curl-me-that in the cluster of KUBECONFIG and checks that it keeps
// its promises while pods come and go. `make test-cluster` sets its environment variables:
//
//	HELM                      the program
//	CHART                     chart to install, a folder or a packaged chart;
//	                          default: deploy/chart
//	MANIFESTS                 folder of install.yaml; default: rendered
//	CURLMETHAT_E2E_VERSION    tag of the images
//	CURLMETHAT_E2E_NEXT       tag of the images to upgrade to
//	CURLMETHAT_E2E_DOMAIN     domain of the cluster, if that is not cluster.local
//
// All nodes must have the images, or be able to pull them. The suite changes no existing objects,
// but while it runs, it also fills other annotated ConfigMaps in the cluster.
package cluster_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

func TestCluster(t *testing.T) { installation.Run(t, "Cluster") }

// registry is the image registry in the chart's values.
const registry = "ghcr.io/kv8s/curl-me-that/"

var (
	cluster       *world.Cluster
	origin        *installation.OriginPod
	version, next string
	// shown are the namespaces that a failed spec prints.
	shown []string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	version, next = needs("CURLMETHAT_E2E_VERSION"), needs("CURLMETHAT_E2E_NEXT")
	cluster = suitetest.Must(world.OpenCluster(needs("KUBECONFIG")))
	web := namespace(ctx, "curl-me-that-web-")
	origin = installation.RunOrigin(ctx, cluster, cmp.Or(os.Getenv("CURLMETHAT_E2E_DOMAIN"), "cluster.local"), web,
		registry+"origin:"+version)
	// These are for package installation, here and in the child process that runs the suite installed.
	Expect(os.Setenv("CURLMETHAT_E2E_ORIGIN", origin.URL)).To(Succeed())
	Expect(os.Setenv("CURLMETHAT_E2E_CONTROL", origin.Control)).To(Succeed())
})

var _ = AfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		installation.Show(ctx, cluster.Client, shown...)
	}
})

func needs(variable string) string {
	GinkgoHelper()
	value := os.Getenv(variable)
	if value == "" {
		Fail(variable + " is not set: run `make test-cluster`")
	}
	return value
}

// chartPath returns the path of the chart to install.
func chartPath() string {
	GinkgoHelper()
	return cmp.Or(os.Getenv("CHART"), fromRoot("deploy/chart"))
}

// fromRoot returns the absolute path of a file below the root of the repository.
func fromRoot(path string) string {
	GinkgoHelper()
	return suitetest.Must(filepath.Abs(filepath.Join("..", "..", "..", path)))
}

// namespace creates a namespace with the restricted standard until the end of the container or suite.
func namespace(ctx context.Context, prefix string) string {
	GinkgoHelper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	created := suitetest.Must(cluster.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}, metav1.CreateOptions{}))
	shown = append(shown, created.Name)
	DeferCleanup(func(ctx SpecContext) { remove(ctx, created.Name) })
	return created.Name
}

// remove deletes a namespace and waits until it is gone.
func remove(ctx context.Context, name string) {
	GinkgoHelper()
	namespaces := cluster.Client.CoreV1().Namespaces()
	gone := MatchError(apierrors.IsNotFound, "not found")
	Expect(namespaces.Delete(ctx, name, metav1.DeleteOptions{})).To(Or(Succeed(), gone))
	Eventually(ctx, func() error { return world.ErrorOf(namespaces.Get(ctx, name, metav1.GetOptions{})) }).
		Should(gone, "namespace %s is gone", name)
}
