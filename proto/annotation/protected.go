package annotation

import "slices"

const (
	// RootCA is a ConfigMap that is in every namespace, and that every pod
	// trusts. It is left alone everywhere.
	RootCA = "kube-root-ca.crt"
	// IgnoreLabel with the value IgnoreValue makes an object be left alone, as
	// Selector does.
	IgnoreLabel = "reconciler"
	// IgnoreValue is the value of IgnoreLabel.
	IgnoreValue = "ignore"
)

// DefaultProtected returns the namespaces that the control plane itself keeps
// ConfigMaps in.
func DefaultProtected() []string { return []string{"kube-system", "kube-public", "kube-node-lease"} }

// Protects reports whether a ConfigMap is left alone, whatever it asks for: it
// is in a protected namespace, or is the RootCA.
func Protects(protected []string, namespace, name string) bool {
	return name == RootCA || slices.Contains(protected, namespace)
}
