// Package access gives programs their way to a cluster: rights from manifests,
// and kubeconfigs with a token of their own.
package access
