package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// team is a namespace with sidecar injection, and its Watchers.
type team struct {
	namespace string
	watchers  *watchv1.Namespaced
}

// apply creates or updates a Watcher from a spec in YAML.
func (t *team) apply(ctx context.Context, name, spec string) {
	GinkgoHelper()
	suitetest.Must(kubetest.ApplyWatcher(ctx, t.watchers, name, spec))
}

// eventually waits until a condition of a Watcher is "status/reason".
func (t *team) eventually(ctx context.Context, name, kind, value string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		w, err := t.watchers.Get(ctx, name, metav1.GetOptions{})
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
	Eventually(ctx, t.watchers.Get).WithArguments(name, metav1.GetOptions{}).WithTimeout(scheduled).
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
		definitions := suitetest.Must(dynamic.NewForConfig(cluster.Config)).Resource(schema.GroupVersionResource{
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
		t.watchers = suitetest.Must(watchv1.NewClient(cluster.Config, nil)).In(t.namespace)
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
