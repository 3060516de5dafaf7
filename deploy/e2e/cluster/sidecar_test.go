package cluster_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/release"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

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
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(
		"apiVersion: watch.x-kv8s.io/v1alpha1\nkind: Watcher\nmetadata: {name: "+name+"}\nspec: {"+spec+"}"), &o.Object)).
		To(Succeed())
	_, err := t.watchers.Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
	Expect(err).NotTo(HaveOccurred())
}

// get returns a Watcher.
func (t *team) get(ctx context.Context, name string) (w watchv1.Watcher, err error) {
	o, err := t.watchers.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return w, err
	}
	return w, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &w)
}

// condition returns a condition of a Watcher as "status/reason".
func (t *team) condition(ctx context.Context, name, kind string) (string, error) {
	w, err := t.get(ctx, name)
	if err != nil {
		return "", err
	}
	c := meta.FindStatusCondition(w.Status.Conditions, kind)
	if c == nil {
		return "-", nil
	}
	return string(c.Status) + "/" + c.Reason, nil
}

func (t *team) eventually(ctx context.Context, name, kind, value string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) { return t.condition(ctx, name, kind) }).WithTimeout(scheduled).
		Should(Equal(value))
}

// secure is a security context in YAML that complies with the restricted standard.
const secure = `securityContext: {runAsNonRoot: true, runAsUser: 65532, allowPrivilegeEscalation: false, ` +
	`capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`

// app is a container in YAML that serves until it is stopped.
func app() string {
	return `{name: app, image: "` + registry + `origin:` + version + `", ` + secure + `}`
}

// sidecar is another such container, with other ports and further fields.
func sidecar(name string, fields ...string) string {
	fields = append([]string{
		`name: ` + name, `image: "` + registry + `origin:` + version + `"`, `args: ["--pages=:9080", "--listen=:9084"]`,
		secure,
	}, fields...)
	return `{` + strings.Join(fields, ", ") + `}`
}

// template returns a pod template that names Watchers, with one container in YAML.
func template(names, container string) corev1.PodTemplateSpec {
	GinkgoHelper()
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"app": names}, Annotations: map[string]string{watchv1.InjectAnnotation: names},
	}}
	var c corev1.Container
	Expect(yaml.UnmarshalStrict([]byte(container), &c)).To(Succeed())
	t.Spec = corev1.PodSpec{Containers: []corev1.Container{c}, AutomountServiceAccountToken: new(false)}
	return t
}

// pods returns the pods that name Watchers.
func (t *team) pods(ctx context.Context, names string) []corev1.Pod {
	GinkgoHelper()
	list, err := cluster.Client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + names})
	Expect(err).NotTo(HaveOccurred())
	return list.Items
}

// pod creates a pod that names a Watcher, with one container in YAML.
func (t *team) pod(name, container string) *corev1.Pod {
	GinkgoHelper()
	of := template(name, container)
	of.Name, of.Namespace = name, t.namespace
	return &corev1.Pod{ObjectMeta: of.ObjectMeta, Spec: of.Spec}
}

// events returns the number of Events about a Watcher with a reason.
func (t *team) events(ctx context.Context, name, reason string) int {
	GinkgoHelper()
	list, err := cluster.Client.CoreV1().Events(t.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + watchv1.Kind + ",involvedObject.name=" + name + ",reason=" + reason,
	})
	Expect(err).NotTo(HaveOccurred())
	return len(list.Items)
}

// eventuallyCounts waits for these pod counts in the status of a Watcher.
func (t *team) eventuallyCounts(ctx context.Context, name string, counts watchv1.PodsStatus) {
	GinkgoHelper()
	Eventually(ctx, func() (*watchv1.PodsStatus, error) {
		w, err := t.get(ctx, name)
		return w.Status.Pods, err
	}).WithTimeout(scheduled).Should(Equal(&counts), "pods of %s", name)
}

// grants binds a user of the team to a role.
func (t *team) grants(ctx context.Context, user string, role rbacv1.RoleRef) {
	GinkgoHelper()
	_, err := cluster.Client.RbacV1().RoleBindings(t.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: role,
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "team-" + user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// as returns a client for the team's Watchers, as one of its users.
func (t *team) as(user string) dynamic.ResourceInterface {
	GinkgoHelper()
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "team-" + user, Groups: []string{"system:authenticated"}}
	client, err := dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client.Resource(watchv1.Resource()).Namespace(t.namespace)
}

// served reports whether a pod runs with a sidecar of that name.
func served(pod corev1.Pod, name string) bool {
	for _, status := range pod.Status.InitContainerStatuses {
		if status.Name == name {
			return pod.Status.Phase == corev1.PodRunning && status.State.Running != nil
		}
	}
	return false
}

// deployment creates a Deployment of n pods.
func (t *team) deployment(ctx context.Context, names string, n int32) {
	GinkgoHelper()
	_, err := cluster.Client.AppsV1().Deployments(t.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: names},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": names}},
			Template: template(names, app()),
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// eventuallyServed waits until all n pods run with a sidecar.
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
		installed *release.Release
		t         *team
	)
	BeforeAll(func(ctx SpecContext) {
		client, err := dynamic.NewForConfig(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		definitions := client.Resource(schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions",
		})
		definition := watchv1.Resource().GroupResource().String()
		_, err = definitions.Get(ctx, definition, metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "there are Watchers already: the cluster is not fresh")
		// The chart keeps it on uninstall.
		DeferCleanup(func(ctx SpecContext) {
			Expect(definitions.Delete(ctx, definition, metav1.DeleteOptions{})).To(Succeed())
		})

		t = &team{namespace: namespace(ctx, "curl-me-that-team-")}
		t.watchers = client.Resource(watchv1.Resource()).Namespace(t.namespace)
		_, err = cluster.Client.CoreV1().Namespaces().Patch(ctx, t.namespace, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"`+watchv1.InjectLabel+`":"`+watchv1.InjectValue+`"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		one := map[string]any{"replicas": 1}
		installed = &release.Release{
			Cluster: cluster, Name: "curl-me-that", Chart: chartPath(), Namespace: namespace(ctx, "curl-me-that-sidecars-"),
			Values: map[string]any{
				"image": map[string]any{"tag": version}, "namespaces": []string{t.namespace},
				"resources": map[string]any{"enabled": true}, "sidecar": map[string]any{"enabled": true},
				"watcher": one, "writer": one, keeper: one,
				"fetcher": map[string]any{"replicas": 1, "egress": map[string]any{"allowCIDRs": origin.CIDRs}},
			},
		}
		DeferCleanup(func(ctx SpecContext) { installed.Uninstall(ctx) })
		installed.Install(ctx)
	})
	AfterAll(func(ctx SpecContext) {
		for _, pod := range installed.Pods(ctx, keeper) {
			Expect(installed.Log(ctx, pod, false)).NotTo(Or(ContainSubstring("forbidden"), ContainSubstring("panic:")))
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
		// The Job succeeds only if it could read the ConfigMap.
		checks := template("job",
			`{name: app, image: "`+registry+`curlctl:`+version+`", args: [check, -f, /job/manifest.yaml], volumeMounts: `+
				`[{name: job, mountPath: /job}], `+secure+`}`)
		checks.Spec.Volumes = []corev1.Volume{{Name: "job", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "job-config"}},
		}}}
		checks.Spec.RestartPolicy = corev1.RestartPolicyNever
		jobs := cluster.Client.BatchV1().Jobs(t.namespace)
		_, err := jobs.Create(ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: checks, BackoffLimit: new(int32(0))},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			job, err := jobs.Get(ctx, "job", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(job.Status.Failed).To(BeZero())
			g.Expect(job.Status.Succeeded).To(Equal(int32(1)))
		}).WithTimeout(scheduled).Should(Succeed())
		pods := t.pods(ctx, "job")
		Expect(pods).To(HaveLen(1))
		Expect(pods[0].Status.InitContainerStatuses).To(ConsistOf(And(
			HaveField("Name", "watch-job"), HaveField("State.Terminated", Not(BeNil())))))
		Expect(pods[0].Spec.InitContainers[0].Env).To(ContainElement(HaveField("Name", "LEVEL")))
	})

	It("are added to all pods of a Deployment once their Watcher exists", func(ctx SpecContext) {
		t.deployment(ctx, "late", 2)
		Eventually(ctx, func(g Gomega) {
			d, err := cluster.Client.AppsV1().Deployments(t.namespace).Get(ctx, "late", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Status.Conditions).To(ContainElement(And(
				HaveField("Type", appsv1.DeploymentReplicaFailure), HaveField("Reason", "FailedCreate"),
				HaveField("Message", ContainSubstring(
					`Watcher "late" of the annotation x-kv8s.io/inject does not exist in namespace `+t.namespace)))))
		}).WithTimeout(scheduled).Should(Succeed())
		t.apply(ctx, "late", `configData: {LEVEL: warn}, container: `+sidecar("watch-late"))
		t.eventuallyServed(ctx, "late", "watch-late", 2)
		t.eventuallyCounts(ctx, "late", watchv1.PodsStatus{Injected: 2, Current: 2, Ready: 2})
	})

	It("of two Watchers are added with their volumes and secrets, after the pod's init containers", func(ctx SpecContext) {
		t.apply(ctx, "first", `configData: {LEVEL: warn}, container: `+
			sidecar("watch-first", `volumeMounts: [{name: logs, mountPath: /logs}]`)+`,
			volume: {name: logs, emptyDir: {}}, imagePullSecrets: {name: registry}`)
		t.apply(ctx, "second", `container: {name: watch-second, image: "`+registry+`origin:`+version+`", args: `+
			`["--pages=:9180", "--listen=:9184"], `+secure+`}, imagePullSecrets: {name: registry}`)
		t.eventually(ctx, "first", watchv1.ConditionReady, "True/Ready")
		pod := t.pod("both", app())
		pod.Annotations[watchv1.InjectAnnotation] = "first, second"
		Expect(yaml.UnmarshalStrict(
			[]byte(`[{name: own, image: "`+registry+`curlctl:`+version+`", args: [--version], `+secure+`}]`),
			&pod.Spec.InitContainers)).To(Succeed())
		Eventually(ctx, func() error {
			_, err := cluster.Client.CoreV1().Pods(t.namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		}).Should(Succeed())
		t.eventuallyServed(ctx, "both", "watch-first", 1)
		t.eventuallyServed(ctx, "both", "watch-second", 1)
		now := t.pods(ctx, "both")[0]
		var names []string
		for _, c := range now.Spec.InitContainers {
			names = append(names, c.Name)
		}
		Expect(names).To(HaveExactElements(Equal("own"), HavePrefix("watch-"), HavePrefix("watch-")))
		Expect(now.Spec.ImagePullSecrets).To(HaveExactElements(HaveField("Name", "registry")))
		Expect(now.Spec.Volumes).To(HaveExactElements(HaveField("Name", "logs")))
		Expect(now.Annotations[watchv1.InjectedAnnotation]).To(And(ContainSubstring("first=1"), ContainSubstring("second=1")))

		By("creating a pod from a copy, which gets nothing more")
		again := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "again", Labels: now.Labels, Annotations: now.Annotations},
			Spec:       now.Spec,
		}
		again.Spec.NodeName = ""
		copied, err := cluster.Client.CoreV1().Pods(t.namespace).
			Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(copied.Spec.InitContainers).To(HaveLen(len(names)))
		Expect(copied.Spec.ImagePullSecrets).To(HaveLen(1))
		Expect(copied.Spec.Volumes).To(HaveLen(1))
		t.eventuallyCounts(ctx, "first", watchv1.PodsStatus{Injected: 1, Current: 1, Ready: 1})
	})

	It("that crash are counted, with one Event, and another Event when one recovers", func(ctx SpecContext) {
		t.apply(ctx, "crashes", `container: `+strings.Replace(sidecar("watch-crashes"), `--pages=:9080`, `--no-such-flag`, 1))
		t.deployment(ctx, "crashes", 1)
		t.eventuallyCounts(ctx, "crashes", watchv1.PodsStatus{Injected: 1, Current: 1, Failing: 1})
		Eventually(ctx, func() int { return t.events(ctx, "crashes", watchv1.ReasonSidecarFailing) }).Should(Equal(1))
		t.apply(ctx, "crashes", `container: `+sidecar("watch-crashes"))
		pods := cluster.Client.CoreV1().Pods(t.namespace)
		Expect(pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
			metav1.ListOptions{LabelSelector: "app=crashes"})).To(Succeed())
		t.eventuallyCounts(ctx, "crashes", watchv1.PodsStatus{Injected: 1, Current: 1, Ready: 1})
		Eventually(ctx, func() int { return t.events(ctx, "crashes", watchv1.ReasonSidecarRecovered) }).Should(Equal(1))
		Expect(t.events(ctx, "crashes", watchv1.ReasonSidecarFailing)).To(Equal(1))
	})

	It("are not added in namespaces without the label", func(ctx SpecContext) {
		pod := t.pod("nosuch", app())
		pod.Namespace = namespace(ctx, "curl-me-that-plain-")
		created, err := cluster.Client.CoreV1().Pods(pod.Namespace).
			Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(created.Spec.InitContainers).To(BeEmpty())
		Expect(created.Annotations).NotTo(HaveKey(watchv1.InjectedAnnotation))
	})

	It("may be set by users who may create pods, such as those with the roles edit and admin", func(ctx SpecContext) {
		t.grants(ctx, "editor", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"})
		watches := t.as("editor")
		Eventually(ctx, func() error { // the roles are brought together by a controller
			_, err := watches.Patch(ctx, "late", types.MergePatchType, []byte(`{"spec":{"container":{"image":"any"}}}`),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(Succeed())

		_, err := cluster.Client.RbacV1().Roles(t.namespace).
			Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "watchers"}, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{watchv1.GroupVersion().Group}, Resources: []string{"watchers"}, Verbs: []string{"get", "patch"},
			}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		t.grants(ctx, "watcher", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "watchers"})
		watches = t.as("watcher")
		Eventually(ctx, func() error {
			_, err := watches.Patch(ctx, "late", types.MergePatchType, []byte(`{"spec":{"configData":{"LEVEL":"info"}}}`),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(Succeed())
		t.apply(ctx, "without", `configData: {LEVEL: warn}`)
		for _, change := range []struct{ of, patch string }{
			{"late", `{"spec":{"container":{"image":"any"}}}`},
			{"late", `{"spec":{"container":null}}`},
			{"without", `{"spec":{"container":{"name":"any","image":"any"}}}`},
		} {
			_, err := watches.Patch(ctx, change.of, types.MergePatchType, []byte(change.patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			Expect(err).To(MatchError(apierrors.IsForbidden, "forbidden"), change.patch)
		}
	})

	It("with an environment older than the ConfigMap are listed by curlctl", func(ctx SpecContext) {
		page := installation.Open(ctx).Page("/news").Says(ctx, "old")
		t.apply(ctx, "news", `sources: [{key: NEWS, url: "`+page.URL()+`"}]`)
		t.eventually(ctx, "news", watchv1.ConditionReady, "True/Ready")
		for name, uses := range map[string]string{
			"reads-env":    `env: [{name: NEWS, valueFrom: {configMapKeyRef: {name: news-config, key: NEWS}}}]`,
			"reads-volume": `volumeMounts: [{name: news, mountPath: /news}]`,
		} {
			pod := t.pod(name, strings.TrimSuffix(app(), "}")+", "+uses+"}")
			delete(pod.Annotations, watchv1.InjectAnnotation)
			pod.Spec.Volumes = []corev1.Volume{{Name: "news", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "news-config"}},
			}}}
			_, err := cluster.Client.CoreV1().Pods(t.namespace).Create(ctx, pod, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		newest := func(g Gomega) map[string]string {
			out, err := exec.CommandContext(ctx, fromRoot("bin/curlctl"), "pods", t.namespace+"/news", "-o", "json").Output()
			g.Expect(err).NotTo(HaveOccurred())
			var list struct {
				Items []struct {
					Pod, Newest string
					Started     time.Time
				}
			}
			g.Expect(json.Unmarshal(out, &list)).To(Succeed())
			found := map[string]string{}
			for _, item := range list.Items {
				found[item.Pod] = item.Newest
				g.Expect(item.Started).NotTo(BeZero(), "%s runs", item.Pod)
				g.Expect(time.Since(item.Started)).To(BeNumerically(">", 2*time.Second), "times have seconds")
			}
			return found
		}
		Eventually(ctx, newest).WithTimeout(scheduled).WithPolling(time.Second).
			Should(And(HaveLen(2), Not(ContainElement("no"))))
		page.Says(ctx, "new")
		_, err := t.watchers.Patch(ctx, "news", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, newest).WithTimeout(scheduled).WithPolling(time.Second).
			Should(And(HaveKeyWithValue("reads-env", "no"), HaveKeyWithValue("reads-volume", Not(Equal("no")))))
	})

	It("that Pod Security rejects are reported by Injectable before that", func(ctx SpecContext) {
		t.apply(ctx, "privileged", `container: {name: privileged, image: any, securityContext: {privileged: true}}`)
		t.eventually(ctx, "privileged", watchv1.ConditionInjectable, "False/PodSecurity")
		pod := template("privileged", app())
		Eventually(ctx, func() error {
			_, err := cluster.Client.CoreV1().Pods(t.namespace).Create(ctx,
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "privileged", Annotations: pod.Annotations}, Spec: pod.Spec},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(MatchError(ContainSubstring(
			`violates PodSecurity "restricted:latest": privileged (container "privileged" must not set ` +
				`securityContext.privileged=true)`)))
	})

	It("are added to pods while keeper is down", func(ctx SpecContext) {
		installed.Scale(ctx, keeper, 0)
		installed.EventuallyRuns(ctx, keeper, 0)
		t.apply(ctx, "alone", `container: `+sidecar("watch-alone"))
		t.deployment(ctx, "alone", 1)
		t.eventuallyServed(ctx, "alone", "watch-alone", 1)
		installed.Scale(ctx, keeper, 1)
		t.eventually(ctx, "alone", watchv1.ConditionInjectable, "True/Injectable")
		t.eventuallyCounts(ctx, "alone", watchv1.PodsStatus{Injected: 1, Current: 1, Ready: 1})
	})

	It("count errors in the log of the main container, as the sample log-watch does", func(ctx SpecContext) {
		if os.Getenv("CURLMETHAT_E2E_BUSYBOX") == "" {
			Skip("the nodes have no busybox: `make test-cluster` loads it if docker has it")
		}
		sample := func(name string) []byte {
			text, err := os.ReadFile(fromRoot("deploy/samples/sidecars/log-watch/" + name))
			Expect(err).NotTo(HaveOccurred())
			return text
		}
		watcher := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(sample("watcher.yaml"), &watcher.Object)).To(Succeed())
		_, err := t.watchers.Apply(ctx, watcher.GetName(), watcher, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
		Expect(err).NotTo(HaveOccurred())
		t.eventually(ctx, "log-watch", watchv1.ConditionInjectable, "True/Injectable")
		pod := &corev1.Pod{}
		Expect(yaml.UnmarshalStrict(sample("pod.yaml"), pod)).To(Succeed())
		pods := cluster.Client.CoreV1().Pods(t.namespace)
		_, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() (string, error) {
			body, err := pods.ProxyGet("http", pod.Name, "9100", "metrics.txt", nil).DoRaw(ctx)
			return string(body), err
		}).WithTimeout(scheduled).WithPolling(time.Second).Should(MatchRegexp(`^log_errors_total [1-9]`))
		Expect(pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
	})

	It("of a deleted Watcher hand its ConfigMap to the next Watcher that names it", func(ctx SpecContext) {
		shared := func(name string) string {
			return `configData: {whose: ` + name + `}, target: {name: shared}, container: ` + sidecar("watch-"+name)
		}
		t.apply(ctx, "elder", shared("elder"))
		t.eventually(ctx, "elder", watchv1.ConditionReady, "True/Ready")
		t.apply(ctx, "younger", shared("younger"))
		t.eventually(ctx, "younger", watchv1.ConditionStalled, "True/TargetOwned")
		Expect(t.watchers.Delete(ctx, "elder", metav1.DeleteOptions{})).To(Succeed())
		t.eventually(ctx, "younger", watchv1.ConditionReady, "True/Ready")
		made, err := cluster.Client.CoreV1().ConfigMaps(t.namespace).Get(ctx, "shared", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(made.Data).To(Equal(map[string]string{"whose": "younger"}))
	})

	It("in running pods outlive their Watcher", func(ctx SpecContext) {
		Expect(t.watchers.Delete(ctx, "late", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, func() bool {
			_, err := cluster.Client.CoreV1().ConfigMaps(t.namespace).Get(ctx, "late-config", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).WithTimeout(scheduled).Should(BeTrue(), "the ConfigMap is collected")
		for _, pod := range t.pods(ctx, "late") {
			Expect(served(pod, "watch-late")).To(BeTrue(), pod.Name)
		}
	})
})
