package keeper

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/policy"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// sidecar returns a sidecar that meets the standard "restricted" as far as a container can, after a
// change.
func sidecar(change func(*plan.Sidecar)) *plan.Plan {
	s := &plan.Sidecar{Container: &corev1.Container{
		Name: "watch", Image: "i", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}}
	change(s)
	return &plan.Plan{Watcher: types.NamespacedName{Namespace: "team-a", Name: "errors"}, Sidecar: s}
}

// obstacle returns the obstacle of a plan in a namespace with labels.
func obstacle(enabled bool, p *plan.Plan, labels map[string]string) *plan.Problem {
	GinkgoHelper()
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: labels}}
	i := injection{
		enabled: enabled, protected: []string{"kube-system"}, labels: func(name string) (map[string]string, bool) {
			if name != namespace.Name {
				return nil, true
			}
			return readNamespace(namespace).Labels, true
		},
		security: suitetest.Must(policy.NewEvaluator(policy.DefaultChecks(), nil)),
	}
	found, known := i.obstacle(p)
	Expect(known).To(BeTrue())
	return found
}

func same(*plan.Sidecar) {}

func privileged(s *plan.Sidecar) { s.Container.SecurityContext.Privileged = new(true) }

func hostPath(s *plan.Sidecar) {
	s.Volume = &corev1.Volume{
		Name:         "host",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	}
}

func probing(s *plan.Sidecar) {
	s.Container.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "10.0.0.1"}},
	}
}

func bare(s *plan.Sidecar) { s.Container.SecurityContext = nil }

var _ = DescribeTable("The sidecar of a Watcher", func(change func(*plan.Sidecar), labels map[string]string,
	reason string, message any,
) {
	found := obstacle(true, sidecar(change), labels)
	if reason == "" {
		Expect(found).To(BeNil())
		return
	}
	Expect(found).To(HaveValue(And(HaveField("Reason", reason), HaveField("Message", message))))
},
	Entry("is injected where pods may do anything", privileged, map[string]string{"x-kv8s.io/inject": "enabled"}, "", ""),
	Entry("is injected if it meets the standard", same,
		map[string]string{"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "restricted"}, "", ""),
	Entry("is injected if the standard of an earlier version allows it", probing, map[string]string{
		"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "baseline",
		"pod-security.kubernetes.io/enforce-version": "v1.30",
	}, "", ""),
	Entry("is refused if that of a later version does not", probing,
		map[string]string{"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "baseline"},
		watchv1.ReasonPodSecurity, ContainSubstring(`baseline:latest: probe or lifecycle host`)),
	Entry("is not injected without the label", same, map[string]string{"team": "a"}, watchv1.ReasonNamespaceNotEnabled,
		"the pods of namespace team-a get no sidecars until it has the label x-kv8s.io/inject=enabled"),
	Entry("is not injected with another value of it", same, map[string]string{"x-kv8s.io/inject": "true"},
		watchv1.ReasonNamespaceNotEnabled,
		"the pods of namespace team-a get no sidecars until it has the label x-kv8s.io/inject=enabled"),
	Entry("is refused when it is privileged", privileged,
		map[string]string{"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "baseline"},
		watchv1.ReasonPodSecurity,
		`pods with the sidecar are refused because namespace team-a enforces the Pod Security standard baseline:latest: `+
			`privileged (container "watch" must not set securityContext.privileged=true)`),
	Entry("is refused for its volume", hostPath,
		map[string]string{"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "baseline"},
		watchv1.ReasonPodSecurity,
		`pods with the sidecar are refused because namespace team-a enforces the Pod Security standard baseline:latest: `+
			`hostPath volumes (volume "host")`),
	Entry("is refused with all of its violations, and none that a pod can fix", bare,
		map[string]string{
			"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "restricted",
			"pod-security.kubernetes.io/enforce-version": "v1.36",
		},
		watchv1.ReasonPodSecurity,
		`pods with the sidecar are refused because namespace team-a enforces the Pod Security standard restricted:v1.36: `+
			`allowPrivilegeEscalation != false (container "watch" must set securityContext.allowPrivilegeEscalation=false), `+
			`unrestricted capabilities (container "watch" must set securityContext.capabilities.drop=["ALL"])`),
	Entry("is checked against the strictest standard if the label is invalid", privileged,
		map[string]string{"x-kv8s.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "privilegd"},
		watchv1.ReasonPodSecurity,
		`pods with the sidecar are refused because namespace team-a enforces the Pod Security standard restricted:latest: `+
			`privileged (container "watch" must not set securityContext.privileged=true)`),
)

var _ = Describe("The obstacle of a sidecar", func() {
	It("is the operator's setting if sidecars are disabled", func() {
		Expect(obstacle(false, sidecar(same), map[string]string{"x-kv8s.io/inject": "enabled"})).To(HaveValue(And(
			HaveField("Reason", watchv1.ReasonPoliciesMissing),
			HaveField("Message", "the operator has not enabled sidecars (sidecar.enabled of the chart), so no pod gets one"))))
	})

	It("is a protected namespace", func() {
		p := sidecar(same)
		p.Watcher.Namespace = "kube-system"
		Expect(obstacle(true, p, nil)).To(HaveValue(And(
			HaveField("Reason", watchv1.ReasonNamespaceNotEnabled),
			HaveField("Message", "namespace kube-system is protected; its pods get no sidecars"))))
	})

	It("is unknown until the namespaces are listed", func() {
		i := injection{enabled: true, labels: func(string) (map[string]string, bool) { return nil, false }}
		_, known := i.obstacle(sidecar(same))
		Expect(known).To(BeFalse())
	})

	It("is the missing label of a namespace that does not exist yet", func() {
		p := sidecar(same)
		p.Watcher.Namespace = "new"
		Expect(obstacle(true, p, nil)).To(HaveValue(HaveField("Reason", watchv1.ReasonNamespaceNotEnabled)))
	})
})

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "a", Name: name}
}

var _ = Describe("An index", func() {
	It("finds objects by their current names, sorted by rank and name, and returns the changed names", func() {
		x := newIndex()
		shared, other := named("shared"), named("other")
		Expect(x.set(named("b"), 1, shared, other)).To(ConsistOf(shared, other))
		Expect(x.set(named("a"), 1, shared)).To(ConsistOf(shared))
		Expect(x.set(named("c"), 0, shared)).To(ConsistOf(shared))
		Expect(x.of(shared)).To(Equal([]types.NamespacedName{named("c"), named("a"), named("b")}))
		first, _ := x.first(shared)
		Expect(first).To(Equal(named("c")))

		Expect(x.set(named("b"), 1, other)).To(ConsistOf(shared, other, other))
		Expect(x.set(named("b"), 1, other)).To(BeEmpty(), "unchanged")
		Expect(x.set(named("c"), 2, shared)).To(ConsistOf(shared, shared), "recreated")
		Expect(x.of(shared)).To(Equal([]types.NamespacedName{named("a"), named("c")}))
		Expect(x.of(other)).To(Equal([]types.NamespacedName{named("b")}))
		Expect(x.set(named("b"), 1)).To(ConsistOf(other))
		Expect(x.set(named("b"), 2)).To(BeEmpty(), "forgotten")
		Expect(x.of(other)).To(BeEmpty())
		_, found := x.first(other)
		Expect(found).To(BeFalse())
	})
})
