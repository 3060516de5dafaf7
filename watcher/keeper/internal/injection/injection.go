// Package injection finds out whether pods of a namespace would get the sidecar of a
// Watcher. The API server injects it by policies; nothing here does.
package injection

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// Config of a Checker.
type Config struct {
	// Enabled: the policies are installed.
	Enabled bool
	// Protected namespaces get no sidecars.
	Protected []string
}

// Deps is what a Checker works with.
type Deps struct {
	// Labels returns those of a namespace that Read keeps; not known: the
	// namespaces have not been listed yet.
	Labels func(namespace string) (labels map[string]string, known bool)
}

// Checker is safe for concurrent use.
type Checker struct {
	config   Config
	deps     Deps
	security policy.Evaluator
}

// New returns a checker.
func New(c Config, d Deps) (*Checker, error) {
	security, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("read the standards of Pod Security: %w", err)
	}
	return &Checker{config: c, deps: d, security: security}, nil
}

// Namespace is what is kept of a namespace.
type Namespace struct {
	informer.Meta
	// Labels that decide about sidecars.
	Labels map[string]string
}

// Read returns what is kept of a namespace.
func Read(m *metav1.PartialObjectMetadata) *Namespace {
	n := &Namespace{Meta: informer.MetaOf(m), Labels: map[string]string{}}
	for _, name := range []string{watchv1.InjectLabel, api.EnforceLevelLabel, api.EnforceVersionLabel} {
		if value, found := m.Labels[name]; found {
			n.Labels[name] = value
		}
	}
	return n
}

// Obstacle returns why pods would not get the sidecar of a plan; nil: they would.
// Not known: the namespaces have not been listed yet.
func (c *Checker) Obstacle(p *plan.Plan) (obstacle *plan.Problem, known bool) {
	namespace := p.Watcher.Namespace
	if !c.config.Enabled {
		return &plan.Problem{
			Reason:  watchv1.ReasonPoliciesMissing,
			Message: "the operator has not enabled sidecars, as sidecar.enabled of the chart does; no pod gets one",
		}, true
	}
	if slices.Contains(c.config.Protected, namespace) {
		return &plan.Problem{
			Reason:  watchv1.ReasonNamespaceNotEnabled,
			Message: "namespace " + namespace + " is protected; its pods get no sidecars",
		}, true
	}
	labels, known := c.deps.Labels(namespace)
	if !known {
		return nil, false
	}
	if labels[watchv1.InjectLabel] != watchv1.InjectValue {
		return &plan.Problem{
			Reason: watchv1.ReasonNamespaceNotEnabled,
			Message: "the pods of namespace " + namespace + " get no sidecars until it has the label " +
				watchv1.InjectLabel + "=" + watchv1.InjectValue,
		}, true
	}
	return c.insecure(namespace, labels, p.Sidecar), true
}

// insecure returns what the standard that the namespace enforces has against a
// sidecar; nil: nothing.
func (c *Checker) insecure(namespace string, labels map[string]string, sidecar *plan.Sidecar) *plan.Problem {
	privileged := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	// Labels that cannot be read count as the strictest, here as in the API server.
	standard, _ := api.PolicyToEvaluate(labels, api.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
	result := policy.AggregateCheckResults(c.security.EvaluatePod(standard.Enforce, &metav1.ObjectMeta{}, pod(sidecar)))
	if result.Allowed {
		return nil
	}
	return &plan.Problem{
		Reason: watchv1.ReasonPodSecurity,
		Message: fmt.Sprintf("pods with the sidecar are refused, since namespace %s enforces the Pod Security standard %s: %s",
			namespace, standard.Enforce, result.ForbiddenDetail()),
	}
}

// pod returns the most secure pod with a sidecar: what a pod may set for all of its
// containers is set, so that what is found is a fault of the sidecar.
func pod(sidecar *plan.Sidecar) *corev1.PodSpec {
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
