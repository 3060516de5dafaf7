package annotation

import "slices"

const (
	// RootCA is a ConfigMap that exists in every namespace and that every pod trusts. It is always
	// ignored.
	RootCA = "kube-root-ca.crt"
	// IgnoreLabel with the value IgnoreValue excludes an object, as Selector does.
	IgnoreLabel = "reconciler"
	// IgnoreValue is the value of IgnoreLabel.
	IgnoreValue = "ignore"
)

// DefaultProtected returns the namespaces in which the control plane keeps its own ConfigMaps.
func DefaultProtected() []string { return []string{"kube-system", "kube-public", "kube-node-lease"} }

// Protects reports whether a ConfigMap is always ignored: it is in a protected namespace, or is the
// RootCA.
func Protects(protected []string, namespace, name string) bool {
	return name == RootCA || slices.Contains(protected, namespace)
}
