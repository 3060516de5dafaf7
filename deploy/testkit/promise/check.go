// Package promise checks writes to ConfigMaps against the promises of the system:
//
//	S1 only annotated keys, keys that the system wrote, and its status change
//	S2 a body is written only if the annotation requests it at that moment
//	S3 no object is created, and no result lands in another object
//	S4 a key that someone else wrote is never overwritten
//	S5 the last good value stays on failure, and no error body is stored
//	W1 no write is without effect
//
// It checks the final state against:
//
//	L4 a key is repaired within the audit interval once its cause is gone
//	T1 no object, namespace or host stops or starves another
package promise

import (
	"fmt"
	"maps"
	"reflect"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Checker checks histories of ConfigMaps.
type Checker struct {
	// Grammar of the annotations.
	Grammar *annotation.Grammar
	// Served reports whether a URL has ever served that body with status 200.
	Served func(url string, body []byte) bool
}

// Check returns a message for each broken promise.
func (c Checker) Check(lives []Life) []string {
	var broken []string
	for _, life := range lives {
		f := &finding{Checker: c, name: life.Name}
		for i := range life.Versions {
			f.version(life, i)
		}
		broken = append(broken, f.broken...)
	}
	return broken
}

// CheckWrite returns a message for each promise that one write of the system broke.
func (c Checker) CheckWrite(before, after *corev1.ConfigMap) []string {
	f := &finding{Checker: c, name: after.Name}
	f.write(before, after)
	return f.broken
}

// finding collects the broken promises of one object.
type finding struct {
	Checker
	name   string
	broken []string
}

func (f *finding) add(version *corev1.ConfigMap, promise, format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf("%s: ConfigMap %s at version %s: %s",
		promise, f.name, version.ResourceVersion, fmt.Sprintf(format, args...)))
}

func (f *finding) version(life Life, i int) {
	v := life.Versions[i]
	switch {
	case v.BySpec:
	case i > 0 && byKeeper(life.Versions[i-1].Object, v.Object), i == 0 && byKeeper(&corev1.ConfigMap{}, v.Object):
		// Keeper writes like the owner of a Watcher and has its own specs.
	case v.Deleted:
		f.add(v.Object, "S1", "the system deleted it")
	case i == 0:
		f.add(v.Object, "S3", "the system created it")
	default:
		f.write(life.Versions[i-1].Object, v.Object)
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
	for key := range sets.KeySet(w.was).Union(sets.KeySet(w.is)) {
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

// foreignChange returns the first part of an object that changed although it is not ours. The API server owns
// managedFields.
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
	s, _ := status.Parse(object.Annotations[annotation.StatusKey]) // an unreadable status counts as none
	return s
}

// unfenced returns entries without the fields that only order results. Failures keep them, because the watcher
// needs them to see that its want was tried.
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

// Promises about the final state.
const (
	// Heals is L4: a key is repaired within the audit interval once its cause is gone.
	Heals = "L4"
	// Apart is T1: no object, namespace or host stops or starves another.
	Apart = "T1"
)

// Right returns a message for each key that does not hold the body of its annotation, and for each of our keys
// without an annotation. promise is its prefix. A suspended object and an invalid annotation request nothing.
func (c Checker) Right(promise string, object *corev1.ConfigMap) []string {
	request, err := c.Grammar.Parse(object.Annotations)
	if err != nil || request.Suspended {
		return nil
	}
	var wrong []string
	held, entries := values(object), statusOf(object).Keys
	keys := sets.KeySet(entries)
	for _, pair := range request.Pairs {
		keys.Insert(pair.Key)
	}
	for _, key := range sets.List(keys) {
		if _, asked := request.URL(key); !asked && request.Mentions(key) { // the pair is invalid
			continue
		}
		if what := c.wrong(request, key, held[key], entries[key]); what != "" {
			wrong = append(wrong, fmt.Sprintf("%s: ConfigMap %s/%s: key %s %s", promise, object.Namespace, object.Name, key,
				what))
		}
	}
	return wrong
}

// wrong returns the problem of a key, or "".
func (c Checker) wrong(request annotation.Request, key string, held *value, entry status.Entry) string {
	url, asked := request.URL(key)
	switch {
	case !asked && held != nil && entry.HasBody() && entry.SHA256 == pipeline.Digest(held.body):
		return "exists and is no longer requested"
	case !asked:
		return ""
	case entry.Failing():
		return "reports " + entry.Error
	case held == nil:
		return "is not there"
	case entry.SHA256 != pipeline.Digest(held.body):
		return "differs from the digest in its status"
	case fromHistory(request, key, entry):
		return ""
	case entry.URL != url:
		return "has the body of another URL"
	case request.Rules[key].Select == "" && !c.Served(url, []byte(held.body)):
		return "has a body that its URL never served"
	}
	return ""
}

// fromHistory reports whether the key has the body to which it is pinned, from the history instead of a URL.
func fromHistory(request annotation.Request, key string, entry status.Entry) bool {
	return entry.URL == "" && request.SHA256[key] != "" && request.SHA256[key] == entry.SHA256
}

// value is the content of a key.
type value struct {
	body   string
	binary bool
}

func values(object *corev1.ConfigMap) map[string]*value {
	all := map[string]*value{}
	for key, text := range object.Data {
		all[key] = &value{body: text}
	}
	for key, body := range object.BinaryData {
		all[key] = &value{body: string(body), binary: true}
	}
	return all
}

// write is one write of the system, with the versions before and after it.
type write struct {
	uid        types.UID
	was, is    map[string]*value
	had, has   map[string]status.Entry
	request    annotation.Request
	unreadable bool
}

// breach is a promise that a write broke for a key.
type breach struct{ promise, what string }

// breaches returns the promises that the change of one key breaks.
func (w *write) breaches(key string, served func(url string, body []byte) bool) []breach {
	url, asked := w.request.URL(key)
	if w.is[key] == nil {
		return w.removalBreaches(key, asked)
	}
	var found []breach
	add := func(promise, what string) { found = append(found, breach{promise, what}) }
	body := []byte(w.is[key].body)
	switch {
	case !asked || w.unreadable:
		add("S1", "was written without a request")
	case w.request.Suspended:
		add("S2", "was written while the object is suspended")
	case fromHistory(w.request, key, w.has[key]): // the digest below is the proof
	case w.has[key].URL != url:
		add("S2", "has the body of another URL than requested")
	case w.request.Rules[key].Select == "" && !served(url, body): // a selection is only a part of the served body
		add("S5", "has a body that its URL never served with status 200")
	}
	digest := pipeline.Digest(w.is[key].body)
	if demanded := w.request.SHA256[key]; demanded != "" && demanded != digest {
		add("S2", "differs from the required digest")
	}
	if w.has[key].SHA256 != digest {
		add("S2", "differs from the digest in its status")
	}
	if w.is[key].binary == utf8.Valid(body) {
		add("S1", "is in data instead of binaryData, or the reverse")
	}
	if w.was[key] != nil && !w.ours(key) {
		add("S4", "was overwritten, although the system never wrote it")
	}
	return found
}

// ours reports whether the system wrote the key, even if another client has changed the value. A status copied
// from another object proves that only for an identical value.
func (w *write) ours(key string) bool {
	entry := w.had[key]
	if !entry.Copied(w.uid) || w.was[key] == nil {
		return entry.HasBody()
	}
	return entry.SHA256 == pipeline.Digest(w.was[key].body)
}

func (w *write) removalBreaches(key string, asked bool) []breach {
	switch {
	case w.unreadable || w.request.Suspended:
		return []breach{{"S5", "was removed, although the annotation is ambiguous"}}
	case asked || w.request.Mentions(key):
		return []breach{{"S5", "was removed, although it is requested"}}
	case !w.ours(key):
		return []breach{{"S4", "was removed, although the system never wrote it"}}
	}
	return nil
}
