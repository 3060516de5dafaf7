package world

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// WatcherOf returns a Watcher. spec is the content of a YAML flow mapping.
func WatcherOf(name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte("metadata: {name: "+name+"}\nspec: {"+spec+"}"), &o.Object)).To(Succeed())
	o.SetAPIVersion(watchv1.GroupVersion().String())
	o.SetKind(watchv1.Kind)
	return o
}

// ReadWatcher reads a Watcher.
func ReadWatcher(ctx context.Context, in dynamic.ResourceInterface, name string) (*watchv1.Watcher, error) {
	o, err := in.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	w := &watchv1.Watcher{}
	return w, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, w)
}

// ConditionOf returns a condition as "status/reason", or "-" if the current generation does not have it yet.
func ConditionOf(w *watchv1.Watcher, kind string) string {
	c := meta.FindStatusCondition(w.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != w.Generation {
		return "-"
	}
	return string(c.Status) + "/" + c.Reason
}
