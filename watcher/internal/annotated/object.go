// Package annotated reads what the watcher keeps of an annotated ConfigMap out of its
// metadata.
package annotated

import (
	"iter"
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// Object is what is kept of one annotated ConfigMap. It is not changed after
// it was stored.
type Object struct {
	informer.Meta
	// Request is what the annotations ask for; Invalid why they cannot be read.
	Request annotation.Request
	Invalid error
	// Bound is how the other keys of its namespace bound what it may ask for; nil: they do not.
	Bound *annotation.Bound
	// Created is when the object was created, in seconds.
	Created int64
	// Status is the content of the status annotation.
	Status Entries
	// Owners of the keys that are asked for or have a status; nil with Owned.
	Owners map[string]annotation.Ownership
	// Owned is the owner of all these keys, if they have the same, as those of most
	// objects.
	Owned annotation.Ownership
	// Written is when the annotation was last written, as far as it is wantindex.
	Written time.Time
	// Asked is when an annotation that asks for something was last written, to
	// the second, as far as the API server has a record.
	Asked time.Time
	// EditedAt is when another manager than the writer last changed the object,
	// to the second, as far as the API server has a record.
	EditedAt time.Time
	// SeenAt is when the watcher saw this version.
	SeenAt time.Time
}

// AskedAt is when what the object asks for was changed, as well as that is
// known: the watch delivers a change at once, but what is found in a list was
// changed at the time that the API server records, a second at most before.
func (o *Object) AskedAt() time.Time {
	if o.Listed && !o.Asked.IsZero() && o.Asked.Before(o.SeenAt) {
		return o.Asked
	}
	return o.SeenAt
}

// Owner returns the ownership of a key.
func (o *Object) Owner(key string) annotation.Ownership {
	if o.Owned != (annotation.Ownership{}) {
		return o.Owned
	}
	if owner, ok := o.Owners[key]; ok {
		return owner
	}
	return annotation.Owners{}.Of(key)
}

// Reader turns metadata into objects.
type Reader struct {
	// Grammar reads the annotations.
	Grammar *annotation.Grammar
	// Protected reports which objects are left alone.
	Protected func(namespace, name string) bool
	// Now is the clock.
	Now func() time.Time
}

// relevant reports whether an object concerns us: it asks for something or seems
// to mean to, or we once wrote to it.
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

// Read returns the object that m describes, or nil when it does not concern us.
func (r *Reader) Read(m *metav1.PartialObjectMetadata) *Object {
	if !r.relevant(m) {
		return nil
	}
	o := &Object{Meta: informer.MetaOf(m), Created: m.CreationTimestamp.Unix(), SeenAt: r.Now()}
	o.Request, o.Invalid = r.Grammar.ParseObject(m)
	// A status that cannot be read counts as none: ownership of the
	// keys is read from managedFields, and the writer writes a new one.
	written, _ := status.Parse(m.Annotations[annotation.StatusKey])
	o.share()
	o.Status = EntriesOf(written, o.Request.URL)
	owners, _ := annotation.ParseOwners(m.ManagedFields) // unreadable: unknown
	o.own(owners)
	for _, entry := range m.ManagedFields {
		if entry.Manager != annotation.FieldManager && entry.Time != nil && entry.Time.After(o.EditedAt) {
			o.EditedAt = entry.Time.Time
		}
	}
	if key, _, found := r.Grammar.Find(m.Annotations); found {
		o.Written = owners.AnnotationChanged(key)
		o.Asked = o.Written
		prefix, _, _ := strings.Cut(key, "/")
		for _, name := range annotation.OptionNames() {
			if at := owners.AnnotationChanged(prefix + "/" + name); at.After(o.Asked) {
				o.Asked = at
			}
		}
	}
	return o
}

// own takes over who owns the keys that are asked for or have a status.
func (o *Object) own(owners annotation.Owners) {
	mixed := false
	for key := range o.keys() {
		owner := owners.Of(key)
		mixed = mixed || o.Owned != (annotation.Ownership{}) && o.Owned != owner
		o.Owned = owner
	}
	if !mixed {
		return
	}
	o.Owned, o.Owners = annotation.Ownership{}, make(map[string]annotation.Ownership, len(o.Request.Pairs))
	for key := range o.keys() {
		o.Owners[key] = owners.Of(key)
	}
}

// keys returns those that are asked for, and those that have a status.
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

// share lets equal text be stored once for all objects: keys and the name of the
// annotation. A key that is cut out of the annotation would also
// hold all of its value in memory.
func (o *Object) share() {
	o.Request.Annotation = unique.Make(o.Request.Annotation).Value()
	for i, pair := range o.Request.Pairs {
		o.Request.Pairs[i].Key = unique.Make(pair.Key).Value()
	}
}
