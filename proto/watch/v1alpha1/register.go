package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the resource.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "watch.x-kv8s.io", Version: "v1alpha1"}
}

// Resource is the resource's name in API paths.
func Resource() schema.GroupVersionResource { return GroupVersion().WithResource("watchers") }

// Kind of the resource.
const Kind = "Watcher"

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &Watcher{}, &WatcherList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
