package watchers_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// injected is a pod as the policy creates it. The spec writes its status, because there is no kubelet.
type injected struct {
	system *system
	name   string
}

// reports writes the status of the sidecar like a kubelet.
func (p injected) reports(ctx context.Context, s corev1.ContainerStatus) {
	GinkgoHelper()
	pods := p.system.Cluster.Client.CoreV1().Pods(p.system.Namespace)
	pod := suitetest.Must(pods.Get(ctx, p.name, metav1.GetOptions{}))
	s.Name, s.Image = "watch", "registry.example/watch"
	pod.Status.Phase, pod.Status.InitContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{s}
	suitetest.Must(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
}

func (p injected) runs(ctx context.Context) {
	GinkgoHelper()
	running := &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	p.reports(ctx, corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: running}})
}

func (p injected) fails(ctx context.Context, reason string) {
	GinkgoHelper()
	waiting := &corev1.ContainerStateWaiting{Reason: reason}
	p.reports(ctx, corev1.ContainerStatus{State: corev1.ContainerState{Waiting: waiting}})
}

func (p injected) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(p.system.Cluster.Client.CoreV1().Pods(p.system.Namespace).
		Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})).To(Succeed())
}

// logged returns the log lines of keeper about a pod.
func (p injected) logged() []string {
	return p.system.keeper.Log.Matching(fmt.Sprintf(`"pod":"%s/%s"`, p.system.Namespace, p.name))
}

// eventuallyLogged waits until keeper logged exactly these messages about a pod.
func (p injected) eventuallyLogged(ctx context.Context, messages ...string) {
	GinkgoHelper()
	lines := make([]any, len(messages))
	for i, m := range messages {
		lines[i] = ContainSubstring(`"message":"` + m + `"`)
	}
	Eventually(ctx, p.logged).Should(HaveExactElements(lines...))
}

// pod creates a pod whose annotation lists injected sidecars.
func (s *system) pod(ctx context.Context, name, annotation string) injected {
	GinkgoHelper()
	s.Cluster.RunPods(ctx, s.Namespace)
	pod := &corev1.Pod{}
	Expect(yaml.UnmarshalStrict(fmt.Appendf(nil, `{
		metadata: {name: %s, labels: {%s: "true"}, annotations: {%s: %s}}, spec: {
		initContainers: [{name: watch, image: registry.example/watch, restartPolicy: Always}],
		containers: [{name: app, image: registry.example/app}]}}`,
		name, watchv1.InjectedLabel, watchv1.InjectedAnnotation, annotation), pod)).To(Succeed())
	suitetest.Must(s.Cluster.Client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
	return injected{s, name}
}

// eventuallyCounts waits for these numbers of injected, current, ready and failing pods.
func (w *watcher) eventuallyCounts(ctx context.Context, counts ...int64) {
	GinkgoHelper()
	Eventually(ctx, func() []int64 {
		p := w.get(ctx).Status.Pods
		if p == nil {
			return nil
		}
		return []int64{p.Injected, p.Current, p.Ready, p.Failing}
	}).Should(Equal(counts), "injected, current, ready and failing of %s", w.name)
}

const withSidecar = `configData: {a: b}, container: {name: watch, image: registry.example/watch}`

var _ = Describe("The sidecars of a Watcher", func() {
	It("are counted in the status, with one log line for each transition", func(ctx SpecContext) {
		s := openWithSidecars(ctx)
		w := s.applyReady(ctx, "errors", withSidecar)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		pod := s.pod(ctx, "web", "errors=1")
		w.eventuallyCounts(ctx, 1, 1, 0, 0)
		pod.runs(ctx)
		w.eventuallyCounts(ctx, 1, 1, 1, 0)
		s.pod(ctx, "others", "other=1")

		w.apply(ctx, withSidecar+`, suspend: true`)
		w.eventuallyCounts(ctx, 1, 0, 1, 0)
		Eventually(ctx, func() float64 { return s.keeper.Metric(ctx, "curlmethat_keeper_sidecars_outdated") }).
			Should(Equal(1.0))
		pod.delete(ctx)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		pod.eventuallyLogged(ctx, "pod injected", "sidecar ready", "pod gone")
		Expect(pod.logged()).To(HaveEach(And(ContainSubstring(`"watcher":"`+s.Namespace+`/errors"`),
			ContainSubstring(`"generation":1`))))
	})

	It("that fail are reported by one Event, and their recovery by another", func(ctx SpecContext) {
		s := openWithSidecars(ctx)
		w := s.apply(ctx, "errors", withSidecar)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		first, second := s.pod(ctx, "first", "errors=1"), s.pod(ctx, "second", "errors=1")
		first.fails(ctx, "CreateContainerConfigError")
		w.eventuallyCounts(ctx, 2, 2, 0, 1)
		second.fails(ctx, "ErrImagePull")
		w.eventuallyCounts(ctx, 2, 2, 0, 2)
		first.fails(ctx, "ImagePullBackOff")
		first.runs(ctx)
		w.eventuallyCounts(ctx, 2, 2, 1, 1)
		Expect(w.events(ctx, watchv1.ReasonSidecarRecovered)).To(BeEmpty())
		second.runs(ctx)
		w.eventuallyCounts(ctx, 2, 2, 2, 0)
		first.eventuallyLogged(ctx, "pod injected", "sidecar failing", "sidecar ready")
		second.eventuallyLogged(ctx, "pod injected", "sidecar failing", "sidecar ready")
		Expect(first.logged()[1]).To(ContainSubstring(`"reason":"CreateContainerConfigError"`))
		Expect(w.events(ctx, watchv1.ReasonSidecarFailing)).To(ConsistOf(And(
			HaveField("Type", "Warning"), HaveField("Note", "the sidecar of pod first fails: CreateContainerConfigError"))))
		Expect(w.events(ctx, watchv1.ReasonSidecarRecovered)).
			To(ConsistOf(And(HaveField("Type", "Normal"), HaveField("Note", "no sidecar fails any more"))))
		Eventually(ctx, func() float64 { return s.keeper.Metric(ctx, "curlmethat_keeper_sidecars", `state="ready"`) }).
			Should(Equal(2.0))

		second.fails(ctx, "CreateContainerConfigError")
		w.eventuallyHasEvents(ctx, watchv1.ReasonSidecarFailing, 2)
	})

	It("cost at most one status write per second, however many there are", func(ctx SpecContext) {
		s := openWithSidecars(ctx)
		w := s.applyReady(ctx, "errors", withSidecar)
		w.eventuallyCounts(ctx, 0, 0, 0, 0)
		before, began := s.writes(ctx)["status"], time.Now()
		for i := range 40 {
			s.pod(ctx, fmt.Sprintf("web-%d", i), "errors=1").runs(ctx)
		}
		w.eventuallyCounts(ctx, 40, 40, 40, 0)
		Expect(s.writes(ctx)["status"] - before).To(BeNumerically("<=", 2+time.Since(began).Seconds()))
	})
})

// letWatchNamespace lets keeper watch its namespace, like the chart.
func letWatchNamespace(ctx context.Context, namespace string) {
	GinkgoHelper()
	rights := suitetest.Must(controlplane.Decode([]byte(strings.ReplaceAll(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NAMESPACE},
  rules: [{apiGroups: [""], resources: [namespaces], resourceNames: [NAMESPACE], verbs: [list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NAMESPACE},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE},
  subjects: [{kind: ServiceAccount, name: curl-me-that-keeper, namespace: NAMESPACE}]}
`, "NAMESPACE", namespace))))
	applier := suitetest.Must(controlplane.NewApplier(env.Cluster.Config, manifest.Manager))
	Expect(applier.Apply(ctx, "", rights...)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(manifest.Delete(ctx, applier, "", rights)).To(Succeed()) })
}

var _ = Describe("The condition Injectable", func() {
	const sidecar = `container: {name: watch, image: i, securityContext: {allowPrivilegeEscalation: false, ` +
		`capabilities: {drop: [ALL]}}}`

	It("names the obstacle, and follows changes of the namespace and the spec", func(ctx SpecContext) {
		s := openWithSidecars(ctx)
		w := s.apply(ctx, "errors", sidecar)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/NamespaceNotEnabled")
		w.eventuallyReady(ctx)
		s.Cluster.Label(ctx, s.Namespace, watchv1.InjectLabel, watchv1.InjectValue)
		w.eventually(ctx, watchv1.ConditionInjectable, "True/Injectable")
		Expect(w.message(ctx, watchv1.ConditionInjectable)).
			To(Equal("pods with the annotation x-kv8s.io/inject: errors get container watch when they are created"))
		s.Cluster.Label(ctx, s.Namespace, "pod-security.kubernetes.io/enforce", "restricted")
		w.apply(ctx, `container: {name: watch, image: i, securityContext: {privileged: true}}`)
		w.eventually(ctx, watchv1.ConditionInjectable, "False/PodSecurity")
		Expect(w.message(ctx, watchv1.ConditionInjectable)).
			To(ContainSubstring(`must not set securityContext.privileged=true`))
		s.Cluster.Label(ctx, s.Namespace, "pod-security.kubernetes.io/enforce", "privileged")
		w.eventually(ctx, watchv1.ConditionInjectable, "True/Injectable")
		w.apply(ctx, `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionInjectable, "-")
		w.eventuallyReady(ctx)
	})
})
