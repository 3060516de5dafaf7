package keeper

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// injection predicts whether pods get a sidecar.
type injection struct {
	// enabled means that the policies are installed.
	enabled bool
	// protected namespaces get no sidecars.
	protected []string
	// labels returns the labels of a namespace that readNamespace keeps, or false until namespaces are listed.
	labels   func(namespace string) (labels map[string]string, known bool)
	security policy.Evaluator
}

// namespace is the cached part of a namespace.
type namespace struct {
	informer.Meta
	// Labels are the labels that decide about sidecars.
	Labels map[string]string
}

// readNamespace returns the cached part of a namespace.
func readNamespace(m *metav1.PartialObjectMetadata) *namespace {
	n := &namespace{Meta: informer.MetaOf(m), Labels: map[string]string{}}
	for _, name := range []string{watchv1.InjectLabel, api.EnforceLevelLabel, api.EnforceVersionLabel} {
		if value, found := m.Labels[name]; found {
			n.Labels[name] = value
		}
	}
	return n
}

// problem returns the reason why pods would not get the sidecar of a plan (nil if they would), or false
// until namespaces are listed.
func (i *injection) problem(p *compile.Plan) (_ *compile.Problem, known bool) {
	namespace := p.Watcher.Namespace
	problem := func(reason, message string) (*compile.Problem, bool) {
		return &compile.Problem{Reason: reason, Message: message}, true
	}
	if !i.enabled {
		return problem(watchv1.ReasonPoliciesMissing,
			"the operator has not enabled sidecars (sidecar.enabled of the chart), so no pod gets one")
	}
	if slices.Contains(i.protected, namespace) {
		return problem(watchv1.ReasonNamespaceNotEnabled,
			"namespace "+namespace+" is protected; its pods get no sidecars")
	}
	labels, known := i.labels(namespace)
	if !known {
		return nil, false
	}
	if labels[watchv1.InjectLabel] != watchv1.InjectValue {
		return problem(watchv1.ReasonNamespaceNotEnabled, "the pods of namespace "+namespace+
			" get no sidecars until it has the label "+watchv1.InjectLabel+"="+watchv1.InjectValue)
	}
	return i.insecure(namespace, labels, p.Sidecar), true
}

// insecure returns the violations of the namespace's Pod Security standard by a sidecar, if any.
func (i *injection) insecure(namespace string, labels map[string]string, sidecar *compile.Sidecar) *compile.Problem {
	privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	// Invalid labels count as the strictest standard, as in the API server.
	standard, _ := api.PolicyToEvaluate(labels, api.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
	result := policy.AggregateCheckResults(i.security.EvaluatePod(standard.Enforce, &metav1.ObjectMeta{}, pod(sidecar)))
	if result.Allowed {
		return nil
	}
	return &compile.Problem{
		Reason: watchv1.ReasonPodSecurity,
		Message: fmt.Sprintf("pods with the sidecar are refused because namespace %s enforces the Pod Security "+
			"standard %s: %s", namespace, standard.Enforce, result.ForbiddenDetail()),
	}
}

// pod returns the most secure pod with a sidecar, so that only the sidecar can violate the standard.
func pod(sidecar *compile.Sidecar) *corev1.PodSpec {
	spec := &corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		InitContainers: []corev1.Container{*sidecar.Container},
	}
	if sidecar.Volume != nil {
		spec.Volumes = []corev1.Volume{*sidecar.Volume}
	}
	return spec
}
