// Package annotated extracts the data that the watcher caches of an annotated ConfigMap.
package annotated

import (
	"iter"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// Object is the cached part of an annotated ConfigMap. It is immutable.
type Object struct {
	informer.Meta
	// Request is the parsed content of the annotations, and Invalid the error if they are invalid.
	Request annotation.Request
	Invalid error
	// compiled is the request after Compile. Copies share it.
	compiled *atomic.Pointer[annotation.Request]
	// Bound has the limits of the namespace that apply to the object (nil: none).
	Bound *v1.Bound
	// Created is the creation time of the object, in seconds.
	Created int64
	Status  Entries
	// OtherAskers has the annotation that asked for each key of another installation, and, as
	// status.ObjectKey, that of a problem (nil: none).
	OtherAskers map[string]string
	// Owners has the owners of keys that are requested or have a status (nil if CommonOwner is set).
	Owners map[string]annotation.Ownership
	// CommonOwner is the common owner of all these keys, if they have one, as in most objects.
	CommonOwner annotation.Ownership
	// MainAnnotatedAt is the time of the last write to the main annotation, if known.
	MainAnnotatedAt time.Time
	// AnnotatedAt is the time of the last write to any of our annotations, in seconds, if known.
	AnnotatedAt time.Time
	// EditedAt is the time of the last write by a manager other than the writer, in seconds, if
	// known.
	EditedAt time.Time
	// SeenAt is the time when the watcher received this version.
	SeenAt time.Time
}

// AskedAt returns the time of the last change of the request. The watch delivers a change at once. For a
// listed object, managedFields have the time, rounded down to a second.
func (o *Object) AskedAt() time.Time {
	if o.Listed && !o.AnnotatedAt.IsZero() && o.AnnotatedAt.Before(o.SeenAt) {
		return o.AnnotatedAt
	}
	return o.SeenAt
}

// Compile returns the object without keys that have an unusable expression. Only a worker may call it,
// because compiling takes long. Others call Compiled.
func (o *Object) Compile() *Object {
	if o.compiled != nil && o.compiled.Load() == nil {
		request := o.Request.Checked()
		o.compiled.Store(&request)
	}
	return o.Compiled()
}

// Compiled returns the object as Compile did, or unchanged if Compile was not called.
func (o *Object) Compiled() *Object {
	if o.compiled == nil || o.compiled.Load() == nil {
		return o
	}
	compiled := *o
	compiled.Request = *o.compiled.Load()
	return &compiled
}

// Owner returns the ownership of a key.
func (o *Object) Owner(key string) annotation.Ownership {
	if o.CommonOwner != (annotation.Ownership{}) {
		return o.CommonOwner
	}
	if owner, ok := o.Owners[key]; ok {
		return owner
	}
	return annotation.Owners{}.Of(key)
}

// Spec returns the request for a pair.
func (o *Object) Spec(pair annotation.Pair) keystate.Spec { return keystate.SpecOf(o.Request, pair) }

// View returns what the object shows about a key.
func (o *Object) View(key string) keystate.View {
	return keystate.View{UID: o.UID, Entry: o.Status.Of(key), Owner: o.Owner(key), OtherAsker: o.OtherAskers[key]}
}

// Reader extracts Objects from metadata.
type Reader struct {
	Grammar *annotation.Grammar
	// Protected reports whether an object is ignored.
	Protected func(namespace, name string) bool
	Now       func() time.Time
}

// relevant reports whether an object is annotated, has an annotation with a typo in its name, or
// has our status.
func (r *Reader) relevant(m *metav1.PartialObjectMetadata) bool {
	if r.Protected != nil && r.Protected(m.Namespace, m.Name) {
		return false
	}
	if r.Grammar.Concerns(m) {
		return true
	}
	_, found := m.Annotations[annotation.StatusKey]
	return found
}

// Read returns the cached part of an object, or nil if the object is irrelevant.
func (r *Reader) Read(m *metav1.PartialObjectMetadata) *Object {
	if !r.relevant(m) {
		return nil
	}
	// An unreadable status counts as none: managedFields show the owners, and the writer writes a new status.
	shown := keystate.ReadMetadata(r.Grammar, &m.ObjectMeta)
	o := &Object{
		Meta: informer.MetaOf(m), Request: shown.Request, Invalid: shown.Invalid, OtherAskers: shown.Others.Askers(),
		Created: m.CreationTimestamp.Unix(), SeenAt: r.Now(),
	}
	if len(o.Request.Rules) > 0 {
		o.compiled = new(atomic.Pointer[annotation.Request])
	}
	o.intern()
	o.Status = EntriesOf(shown.Status, o.Request.URL)
	o.setOwners(shown.Owners)
	for _, entry := range m.ManagedFields {
		if entry.Manager != annotation.FieldManager && entry.Time != nil && entry.Time.After(o.EditedAt) {
			o.EditedAt = entry.Time.Time
		}
	}
	if key, _, found := r.Grammar.Find(m.Annotations); found {
		o.MainAnnotatedAt = shown.Owners.AnnotationChanged(key)
		o.AnnotatedAt = o.MainAnnotatedAt
		prefix, _, _ := strings.Cut(key, "/")
		for _, name := range annotation.OptionNames() {
			if at := shown.Owners.AnnotationChanged(prefix + "/" + name); at.After(o.AnnotatedAt) {
				o.AnnotatedAt = at
			}
		}
	}
	return o
}

// setOwners sets the owners of the keys.
func (o *Object) setOwners(owners annotation.Owners) {
	mixed := false
	for key := range o.keys() {
		owner := owners.Of(key)
		mixed = mixed || o.CommonOwner != (annotation.Ownership{}) && o.CommonOwner != owner
		o.CommonOwner = owner
	}
	if !mixed {
		return
	}
	o.CommonOwner, o.Owners = annotation.Ownership{}, make(map[string]annotation.Ownership, len(o.Request.Pairs))
	for key := range o.keys() {
		o.Owners[key] = owners.Of(key)
	}
}

// keys returns the requested keys and those with a status.
func (o *Object) keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, pair := range o.Request.Pairs {
			if !yield(pair.Key) {
				return
			}
		}
		o.Status.Keys()(yield)
	}
}

// intern interns keys and annotation names. A key that is a substring would keep the whole
// annotation in memory.
func (o *Object) intern() {
	o.Request.Annotation = unique.Make(o.Request.Annotation).Value()
	for i, pair := range o.Request.Pairs {
		o.Request.Pairs[i].Key = unique.Make(pair.Key).Value()
	}
}
