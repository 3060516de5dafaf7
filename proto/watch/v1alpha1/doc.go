// Package v1alpha1 is the custom resource Watcher: it watches URLs, has a
// ConfigMap of its own with what they hold, and can put a sidecar beside it.
//
// The schema, its rules and zz_generated.deepcopy.go are made from the comments
// here by controller-gen (make generate).
//
// +kubebuilder:object:generate=true
// +groupName=watch.x-kv8s.io
package v1alpha1
