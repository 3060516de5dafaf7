package informer

import (
	"fmt"
	"strconv"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/kube"
)

// Meta is the metadata that is cached of every object.
type Meta struct {
	types.NamespacedName
	UID types.UID
	// Version is the resource version (0: not a number).
	Version uint64
	// Listed means that the version comes from a list, so it may be older than its receipt.
	Listed bool
}

// MetaOf returns the Meta of an object.
func MetaOf(object metav1.Object) Meta {
	version := kube.ParseVersion(object.GetResourceVersion())
	return Meta{NamespacedName: nameOf(object), UID: object.GetUID(), Version: version}
}

func (m *Meta) meta() *Meta { return m }

// ResourceVersion returns the resource version (empty: not a number).
func (m *Meta) ResourceVersion() string {
	if m.Version == 0 {
		return ""
	}
	return strconv.FormatUint(m.Version, 10)
}

// Cached is the cached part of an object: a pointer to an immutable struct that embeds its Meta.
type Cached interface {
	comparable
	meta() *Meta
}

// nameOf returns the name of an object and interns its namespace.
func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: unique.Make(object.GetNamespace()).Value(), Name: object.GetName()}
}

// trimmed replaces an object while a list is received. It has the cached part, if any.
type trimmed[T Cached] struct {
	metav1.Object // empty, shared by all

	name    types.NamespacedName
	version uint64
	cached  T
}

// GetNamespace is part of the key in client-go's temporary store.
func (t trimmed[T]) GetNamespace() string { return t.name.Namespace }

// GetName is the other part of that key.
func (t trimmed[T]) GetName() string { return t.name.Name }

func (t trimmed[T]) isEmpty() bool { return t.cached == *new(T) }

// transform returns a function that trims objects of type O, because managedFields alone may be larger
// than the cached part.
func transform[O metav1.Object, T Cached](read func(O) T) func(any) (trimmed[T], error) {
	nothing := &metav1.ObjectMeta{}
	return func(object any) (trimmed[T], error) {
		switch o := object.(type) {
		case trimmed[T]:
			return o, nil
		case O:
			return trimmed[T]{nothing, nameOf(o), kube.ParseVersion(o.GetResourceVersion()), read(o)}, nil
		}
		return trimmed[T]{}, fmt.Errorf("read an object: unexpected type %T", object)
	}
}

// EventKind is a kind of event from a watch.
type EventKind string

const (
	// Added: the watch delivers a new object.
	Added EventKind = "added"
	// Modified: an object changed.
	Modified EventKind = "modified"
	// Deleted: the object is gone, or no longer matches the selector.
	Deleted EventKind = "deleted"
	// Bookmark: the watch is alive.
	Bookmark EventKind = "bookmark"
	// List: all objects of a namespace at once.
	List EventKind = "list"
)

// EventKinds returns all kinds of events.
func EventKinds() []EventKind { return []EventKind{Added, Modified, Deleted, Bookmark, List} }
