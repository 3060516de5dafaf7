package keeper

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// sidecar returns a sidecar that meets the standard "restricted" as far as a container can, after a
// change.
func sidecar(namespace string, change func(*compile.Sidecar)) *compile.Plan {
	s := &compile.Sidecar{Container: &corev1.Container{
		Name: "watch", Image: "i", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}}
	change(s)
	return &compile.Plan{Watcher: types.NamespacedName{Namespace: namespace, Name: "errors"}, Sidecar: s}
}

// enforcing returns the labels of a namespace with sidecars that enforces a standard of a version (empty: latest).
func enforcing(level, version string) map[string]string {
	labels := map[string]string{watchv1.InjectLabel: "enabled", api.EnforceLevelLabel: level}
	if version != "" {
		labels[api.EnforceVersionLabel] = version
	}
	return labels
}

func same(*compile.Sidecar) {}

func privileged(s *compile.Sidecar) { s.Container.SecurityContext.Privileged = new(true) }

func hostPath(s *compile.Sidecar) {
	s.Volume = &corev1.Volume{
		Name:         "host",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	}
}

func probing(s *compile.Sidecar) {
	s.Container.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "10.0.0.1"}},
	}
}

func bare(s *compile.Sidecar) { s.Container.SecurityContext = nil }

const (
	unlabelled = "the pods of namespace team-a get no sidecars until it has the label x-kv8s.io/inject=enabled"
	refused    = "pods with the sidecar are refused because namespace team-a enforces the Pod Security standard "
)

var _ = DescribeTable("The sidecar of a Watcher", func(disabled bool, p *compile.Plan, labels map[string]string,
	reason, message string,
) {
	i := injection{
		enabled: !disabled, protected: []string{"kube-system"}, labels: func(name string) (map[string]string, bool) {
			if name != "team-a" {
				return nil, name != "unlisted"
			}
			return readNamespace(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: labels}}).Labels, true
		},
		security: suitetest.Must(policy.NewEvaluator(policy.DefaultChecks(), nil)),
	}
	found, known := i.problem(p)
	Expect(known).To(Equal(p.Watcher.Namespace != "unlisted"))
	if reason == "" {
		Expect(found).To(BeNil())
		return
	}
	Expect(found).To(HaveValue(And(HaveField("Reason", reason), HaveField("Message", HavePrefix(message)))))
},
	Entry("is injected where pods may do anything", false, sidecar("team-a", privileged),
		map[string]string{watchv1.InjectLabel: "enabled"}, "", ""),
	Entry("is injected if it meets the standard", false, sidecar("team-a", same), enforcing("restricted", ""), "", ""),
	Entry("is injected if the standard of an earlier version allows it", false, sidecar("team-a", probing),
		enforcing("baseline", "v1.30"), "", ""),
	Entry("is refused if the standard of a later version forbids it", false, sidecar("team-a", probing),
		enforcing("baseline", ""), watchv1.ReasonPodSecurity, refused+"baseline:latest: probe or lifecycle host"),
	Entry("is not injected without the label", false, sidecar("team-a", same), map[string]string{"team": "a"},
		watchv1.ReasonNamespaceNotEnabled, unlabelled),
	Entry("is not injected with another value of it", false, sidecar("team-a", same),
		map[string]string{watchv1.InjectLabel: "true"}, watchv1.ReasonNamespaceNotEnabled, unlabelled),
	Entry("is refused when it is privileged", false, sidecar("team-a", privileged), enforcing("baseline", ""),
		watchv1.ReasonPodSecurity, refused+
			`baseline:latest: privileged (container "watch" must not set securityContext.privileged=true)`),
	Entry("is refused for its volume", false, sidecar("team-a", hostPath), enforcing("baseline", ""),
		watchv1.ReasonPodSecurity, refused+`baseline:latest: hostPath volumes (volume "host")`),
	Entry("is refused with all of its violations, and none that a pod can fix", false, sidecar("team-a", bare),
		enforcing("restricted", "v1.36"), watchv1.ReasonPodSecurity, refused+`restricted:v1.36: `+
			`allowPrivilegeEscalation != false (container "watch" must set securityContext.allowPrivilegeEscalation=false), `+
			`unrestricted capabilities (container "watch" must set securityContext.capabilities.drop=["ALL"])`),
	Entry("is checked against the strictest standard if the label is invalid", false, sidecar("team-a", privileged),
		enforcing("privilegd", ""), watchv1.ReasonPodSecurity, refused+
			`restricted:latest: privileged (container "watch" must not set securityContext.privileged=true)`),
	Entry("is not injected if sidecars are disabled", true, sidecar("team-a", same), enforcing("restricted", ""),
		watchv1.ReasonPoliciesMissing,
		"the operator has not enabled sidecars (sidecar.enabled of the chart), so no pod gets one"),
	Entry("is not injected in a protected namespace", false, sidecar("kube-system", same), nil,
		watchv1.ReasonNamespaceNotEnabled, "namespace kube-system is protected; its pods get no sidecars"),
	Entry("is not injected in a namespace that does not exist yet", false, sidecar("new", same), nil,
		watchv1.ReasonNamespaceNotEnabled, "the pods of namespace new get no sidecars until it has the label"),
	Entry("has no known problem until the namespaces are listed", false, sidecar("unlisted", same), nil, "", ""),
)
