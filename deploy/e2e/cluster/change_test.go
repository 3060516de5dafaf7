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
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// recovery is how long interrupted work may take. It is redelivered to another pod after an AckWait of 30 s.
const recovery = 3 * time.Minute

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
		joke := i.Page("/joke").Says(ctx, "A ConfigMap walks into a bar.")
		var valid, invalid *world.ConfigMap
		fillSamples := func(since time.Time) {
			invalid = apply(ctx, i, decode(fromRoot("deploy/samples/config-map-invalid.yaml"))[0])
			valid = apply(ctx, i, decode(fromRoot("deploy/samples/config-map-valid.yaml"))[0], sampleURL, joke.URL())
			valid.EventuallyHasDataWithin(ctx, recovery, "joke", "A ConfigMap walks into a bar.")
			invalid.EventuallyHasEventsWithin(ctx, recovery, "InvalidAnnotation")
			AddReportEntry("time", fmt.Sprintf("from kubectl apply to data and Event: %s",
				time.Since(since).Round(100*time.Millisecond)))
			Expect(invalid.Events(ctx)[0].Note).
				To(Equal("annotation value 'mydata=this isn't a url' does not match expected format key=url"))
			Eventually(ctx, func() int { return i.History.Writes(invalid.Name) }).Should(Equal(1), "the status")
		}

		var loads []*installation.Load
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
					Expect(page.Hits(ctx)).To(Equal(1), "filled keys are not fetched again")
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

const (
	// keeper is the component for Watchers.
	keeper = "keeper"
	// scheduled is a timeout for kubelets on a busy machine.
	scheduled = 2 * time.Minute
)

// team is a namespace with sidecar injection, and its Watchers.
type team struct {
	namespace string
	watchers  dynamic.ResourceInterface
}

// apply creates or updates a Watcher from a spec in YAML.
func (t *team) apply(ctx context.Context, name, spec string) {
	GinkgoHelper()
	suitetest.Must(t.watchers.Apply(ctx, name, world.WatcherOf(name, spec),
		metav1.ApplyOptions{FieldManager: "kubectl", Force: true}))
}

// eventually waits until a condition of a Watcher is "status/reason".
func (t *team) eventually(ctx context.Context, name, kind, value string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		w, err := world.ReadWatcher(ctx, t.watchers, name)
		if err != nil {
			return "", err
		}
		return world.ConditionOf(w, kind), nil
	}).WithTimeout(scheduled).Should(Equal(value))
}

// secure is a security context in YAML that complies with the restricted standard.
const secure = `securityContext: {runAsNonRoot: true, runAsUser: 65532, allowPrivilegeEscalation: false, ` +
	`capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`

// app returns a container in YAML that runs until it is stopped.
func app() string {
	return `{name: app, image: "` + registry + `origin:` + version + `", ` + secure + `}`
}

// sidecar returns the same container with other ports and more fields.
func sidecar(name string, fields ...string) string {
	fields = append([]string{
		`name: ` + name, `image: "` + registry + `origin:` + version + `"`, `args: ["--pages=:9080", "--listen=:9084"]`,
		secure,
	}, fields...)
	return `{` + strings.Join(fields, ", ") + `}`
}

// template returns a pod template in YAML with one container and more fields. Its annotation names Watchers.
func template(names, container, more string) string {
	return `{metadata: {labels: {app: ` + names + `}, annotations: {` + watchv1.InjectAnnotation + `: ` + names + `}},
		spec: {automountServiceAccountToken: false, containers: [` + container + `], ` + more + `}}`
}

// pods returns the pods whose annotation names Watchers.
func (t *team) pods(ctx context.Context, names string) []corev1.Pod {
	GinkgoHelper()
	list := suitetest.Must(cluster.Client.CoreV1().Pods(t.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: "app=" + names}))
	return list.Items
}

// eventuallyCounts waits until the status of a Watcher has these counts of pods.
func (t *team) eventuallyCounts(ctx context.Context, name string, counts watchv1.PodsStatus) {
	GinkgoHelper()
	Eventually(ctx, world.ReadWatcher).WithArguments(t.watchers, name).WithTimeout(scheduled).
		Should(HaveField("Status.Pods", Equal(&counts)), "pods of %s", name)
}

// served reports whether a pod and its sidecar of that name run.
func served(pod corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, func(status corev1.ContainerStatus) bool {
		return status.Name == name && pod.Status.Phase == corev1.PodRunning && status.State.Running != nil
	})
}

// deployment creates a Deployment of n pods.
func (t *team) deployment(ctx context.Context, names string, n int) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(yaml.UnmarshalStrict(fmt.Appendf(nil,
		"{metadata: {name: %[1]s}, spec: {replicas: %[2]d, selector: {matchLabels: {app: %[1]s}}, template: %[3]s}}",
		names, n, template(names, app(), "")), deployment)).To(Succeed())
	suitetest.Must(cluster.Client.AppsV1().Deployments(t.namespace).Create(ctx, deployment, metav1.CreateOptions{}))
}

// eventuallyServed waits until all n pods run with the sidecar.
func (t *team) eventuallyServed(ctx context.Context, names, container string, n int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		list, err := cluster.Client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + names})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(HaveLen(n))
		for _, pod := range list.Items {
			g.Expect(served(pod, container)).To(BeTrue(), "%s: %+v", pod.Name, pod.Status)
		}
	}).WithTimeout(scheduled).WithPolling(time.Second).Should(Succeed())
}

var _ = Describe("Sidecars", Ordered, func() {
	var (
		installed *installation.Release
		t         *team
	)
	BeforeAll(func(ctx SpecContext) {
		client := suitetest.Must(dynamic.NewForConfig(cluster.Config))
		definitions := client.Resource(schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
		})
		definition := watchv1.Resource().GroupResource().String()
		_, err := definitions.Get(ctx, definition, metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the cluster already has the CRD of Watchers")
		// Uninstalling the chart keeps the CRD.
		DeferCleanup(func(ctx SpecContext) {
			Expect(definitions.Delete(ctx, definition, metav1.DeleteOptions{})).To(Succeed())
		})

		t = &team{namespace: namespace(ctx, "curl-me-that-team-")}
		t.watchers = client.Resource(watchv1.Resource()).Namespace(t.namespace)
		cluster.Label(ctx, t.namespace, watchv1.InjectLabel, watchv1.InjectValue)
		one := map[string]any{"replicas": 1}
		installed = &installation.Release{
			Cluster: cluster, Name: "curl-me-that", Chart: chartPath(), Namespace: namespace(ctx, "curl-me-that-sidecars-"),
			Values: map[string]any{
				"image": map[string]any{"tag": version}, "namespaces": []string{t.namespace},
				"sidecar": map[string]any{"enabled": true},
				"watcher": one, "writer": one, keeper: map[string]any{"enabled": true, "replicas": 1},
				"fetcher": map[string]any{"replicas": 1, "egress": map[string]any{"allowCIDRs": origin.CIDRs}},
			},
		}
		DeferCleanup(func(ctx SpecContext) { installed.Uninstall(ctx) })
		installed.Install(ctx)
	})
	AfterAll(func(ctx SpecContext) {
		for _, pod := range installed.Pods(ctx, keeper) {
			Expect(installed.Log(ctx, pod)).NotTo(Or(ContainSubstring("forbidden"), ContainSubstring("panic:")))
		}
	})

	It("run in the pod of a Job with static and fetched data, and the Job completes", func(ctx SpecContext) {
		t.apply(ctx, "job", `configData: {LEVEL: warn, `+
			`manifest.yaml: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"},
			sources: [{key: index, url: "`+origin.URL+`/"}], container: `+
			sidecar("watch-job", `volumeMounts: [{name: served, mountPath: /served}]`)+`,
			volume: {name: served, configMap: {name: job-config}}`)
		t.eventually(ctx, "job", watchv1.ConditionReady, "True/Ready")
		t.eventually(ctx, "job", watchv1.ConditionInjectable, "True/Injectable")
		// The Job succeeds only if it can read the ConfigMap.
		job := &batchv1.Job{}
		Expect(yaml.UnmarshalStrict([]byte(`{metadata: {name: job}, spec: {backoffLimit: 0, template: `+template("job",
			`{name: app, image: "`+registry+`curlctl:`+version+`", args: [check, -f, /job/manifest.yaml], volumeMounts: `+
				`[{name: job, mountPath: /job}], `+secure+`}`,
			`restartPolicy: Never, volumes: [{name: job, configMap: {name: job-config}}]`)+`}}`), job)).To(Succeed())
		jobs := cluster.Client.BatchV1().Jobs(t.namespace)
		suitetest.Must(jobs.Create(ctx, job, metav1.CreateOptions{}))
		Eventually(ctx, jobs.Get).WithArguments("job", metav1.GetOptions{}).WithTimeout(scheduled).
			Should(HaveField("Status", And(HaveField("Failed", BeZero()), HaveField("Succeeded", int32(1)))))
		pods := t.pods(ctx, "job")
		Expect(pods).To(HaveLen(1))
		Expect(pods[0].Status.InitContainerStatuses).To(ConsistOf(And(
			HaveField("Name", "watch-job"), HaveField("State.Terminated", Not(BeNil())))))
		Expect(pods[0].Spec.InitContainers[0].Env).To(ContainElement(HaveField("Name", "LEVEL")))
	})

	It("are added to all pods of a Deployment once their Watcher exists", func(ctx SpecContext) {
		t.deployment(ctx, "late", 2)
		Eventually(ctx, cluster.Client.AppsV1().Deployments(t.namespace).Get).WithArguments("late", metav1.GetOptions{}).
			WithTimeout(scheduled).Should(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", appsv1.DeploymentReplicaFailure), HaveField("Reason", "FailedCreate"),
			HaveField("Message", ContainSubstring(
				`Watcher "late" of the annotation x-kv8s.io/inject does not exist in namespace `+t.namespace))))))
		t.apply(ctx, "late", `configData: {LEVEL: warn}, container: `+sidecar("watch-late"))
		t.eventuallyServed(ctx, "late", "watch-late", 2)
		t.eventuallyCounts(ctx, "late", watchv1.PodsStatus{Injected: 2, Current: 2, Ready: 2})
	})

	It("in running pods outlive their Watcher", func(ctx SpecContext) {
		Expect(t.watchers.Delete(ctx, "late", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func() error {
			return world.ErrorOf(cluster.Client.CoreV1().ConfigMaps(t.namespace).Get(ctx, "late-config", metav1.GetOptions{}))
		}).WithTimeout(scheduled).Should(MatchError(apierrors.IsNotFound, "not found"), "the ConfigMap is garbage collected")
		for _, pod := range t.pods(ctx, "late") {
			Expect(served(pod, "watch-late")).To(BeTrue(), pod.Name)
		}
	})
})
