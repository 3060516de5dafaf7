// Package access gives programs access to a cluster: rights from manifests, and
// kubeconfigs with tokens.
package access
