// Package v1alpha1 is the custom resource Watcher. A Watcher watches URLs, owns a ConfigMap with
// their bodies, and can inject a sidecar next to it.
//
// The schema, its rules and zz_generated.deepcopy.go are generated from the comments here by
// controller-gen (make generate).
// +kubebuilder:object:generate=true
// +groupName=watch.x-kv8s.io
package v1alpha1
