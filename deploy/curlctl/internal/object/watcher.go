package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Watcher is the one that a ConfigMap belongs to, as programs read it.
type Watcher struct {
	Name       string             `json:"name"`
	Fetched    string             `json:"fetched,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReadWatcher adds the Watcher of the ConfigMap.
func (v *View) ReadWatcher(w *watchv1.Watcher) {
	v.Watcher = &Watcher{Name: w.Name, Fetched: w.Status.Fetched, Conditions: w.Status.Conditions}
}
