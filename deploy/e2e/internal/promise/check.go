package promise

import (
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/history"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Checker checks written values.
type Checker struct {
	// Grammar of the annotations.
	Grammar *annotation.Grammar
	// Served reports whether a URL has ever given that body with status 200.
	Served func(url string, body []byte) bool
}

// Check returns a sentence for each broken promise in the lives of ConfigMaps.
func (c Checker) Check(lives []history.Life) []string {
	var broken []string
	for _, life := range lives {
		f := &finding{Checker: c, life: life}
		for i := range life.Versions {
			f.version(i)
		}
		broken = append(broken, f.broken...)
	}
	return broken
}

// finding collects the broken promises of one object.
type finding struct {
	Checker
	life   history.Life
	broken []string
}

func (f *finding) add(version *corev1.ConfigMap, promise, format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf("%s: ConfigMap %s at version %s: %s",
		promise, f.life.Name, version.ResourceVersion, fmt.Sprintf(format, args...)))
}

func (f *finding) version(i int) {
	v := f.life.Versions[i]
	switch {
	case v.BySpec:
	case i > 0 && byKeeper(f.life.Versions[i-1].Object, v.Object), i == 0 && byKeeper(&corev1.ConfigMap{}, v.Object):
		// Keeper writes like the owner of a Watcher and has its own specs.
	case v.Deleted:
		f.add(v.Object, "S1", "the system deleted it")
	case i == 0:
		f.add(v.Object, "S3", "the system created it")
	default:
		f.write(f.life.Versions[i-1].Object, v.Object)
	}
}

// byKeeper reports whether keeper wrote a version: its applied data or its record of
// owned keys changed.
func byKeeper(before, after *corev1.ConfigMap) bool {
	record := func(object *corev1.ConfigMap) *metav1.ManagedFieldsEntry {
		for i, entry := range object.ManagedFields {
			if entry.Manager == watchv1.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply {
				return &object.ManagedFields[i]
			}
		}
		return nil
	}
	is := record(after)
	return is != nil && (!reflect.DeepEqual(record(before), is) ||
		before.Annotations[watchv1.AppliedAnnotation] != after.Annotations[watchv1.AppliedAnnotation])
}

// write checks one write of the system.
func (f *finding) write(before, after *corev1.ConfigMap) {
	if what := foreignChange(before, after); what != "" {
		f.add(after, "S1", "%s changed", what)
	}
	w := &write{
		uid: before.UID,
		was: values(before), is: values(after),
		had: statusOf(before).Keys, has: statusOf(after).Keys,
	}
	var err error
	w.request, err = f.Grammar.Parse(before.Annotations)
	w.unreadable = err != nil
	changed := false
	for key := range union(w.was, w.is) {
		if !reflect.DeepEqual(w.was[key], w.is[key]) {
			changed = true
			for _, b := range w.breaches(key, f.Served) {
				f.add(after, b.promise, "key %s %s", key, b.what)
			}
		}
	}
	if !changed && reflect.DeepEqual(unfenced(w.had), unfenced(w.has)) &&
		reflect.DeepEqual(statusOf(before).Problem, statusOf(after).Problem) {
		f.add(after, "W1", "it was written without any change")
	}
}

// foreignChange names the first part of an object that is not ours and that
// differs. managedFields are the API server's own.
func foreignChange(a, b *corev1.ConfigMap) string {
	for _, part := range []struct {
		name         string
		before, have any
	}{
		{"labels", a.Labels, b.Labels},
		{"annotations", foreignAnnotations(a), foreignAnnotations(b)},
		{"ownerReferences", a.OwnerReferences, b.OwnerReferences},
		{"finalizers", a.Finalizers, b.Finalizers},
		{"immutable", a.Immutable, b.Immutable},
		{"creationTimestamp", a.CreationTimestamp, b.CreationTimestamp},
	} {
		if !reflect.DeepEqual(part.before, part.have) {
			return part.name
		}
	}
	return ""
}

func foreignAnnotations(object *corev1.ConfigMap) map[string]string {
	rest := map[string]string{}
	maps.Copy(rest, object.Annotations)
	delete(rest, annotation.StatusKey)
	return rest
}

func statusOf(object *corev1.ConfigMap) status.Status {
	s, _ := status.Parse(object.Annotations[annotation.StatusKey]) // unreadable: none
	return s
}

// unfenced returns entries without the fields that only order results. Of a failure they
// stay, because the watcher needs them to see that its want was tried.
func unfenced(entries map[string]status.Entry) map[string]status.Entry {
	rest := make(map[string]status.Entry, len(entries))
	for key, e := range entries {
		if !e.Failing() {
			e.Fence = status.Fence{}
		}
		rest[key] = e
	}
	return rest
}

func union[V any](a, b map[string]V) map[string]struct{} {
	keys := map[string]struct{}{}
	for key := range a {
		keys[key] = struct{}{}
	}
	for key := range b {
		keys[key] = struct{}{}
	}
	return keys
}
