package informer

import (
	"fmt"
	"strconv"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/process/kube"
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
	return Meta{NamespacedName: nameOf(object), UID: object.GetUID(), Version: kube.Version(object.GetResourceVersion())}
}

func (m *Meta) meta() *Meta { return m }

// ResourceVersion returns the resource version (empty: not a number).
func (m *Meta) ResourceVersion() string {
	if m.Version == 0 {
		return ""
	}
	return strconv.FormatUint(m.Version, 10)
}

// Kept is the cached part of an object: a pointer to an immutable struct that embeds its Meta.
type Kept interface {
	comparable
	meta() *Meta
}

// nameOf returns the name of an object and interns its namespace.
func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: unique.Make(object.GetNamespace()).Value(), Name: object.GetName()}
}

// trimmed replaces an object while a list is received. It has the cached part, if any.
type trimmed[T Kept] struct {
	metav1.Object // empty, shared by all

	name    types.NamespacedName
	version uint64
	kept    T
}

// GetNamespace is part of the key in client-go's temporary store.
func (t trimmed[T]) GetNamespace() string { return t.name.Namespace }

// GetName is the other part of that key.
func (t trimmed[T]) GetName() string { return t.name.Name }

func (t trimmed[T]) isEmpty() bool { return t.kept == *new(T) }

// transform returns a function that trims objects of type O, because managedFields alone may be larger
// than the cached part.
func transform[O metav1.Object, T Kept](read func(O) T) func(any) (trimmed[T], error) {
	nothing := &metav1.ObjectMeta{}
	return func(object any) (trimmed[T], error) {
		switch o := object.(type) {
		case trimmed[T]:
			return o, nil
		case O:
			return trimmed[T]{nothing, nameOf(o), kube.Version(o.GetResourceVersion()), read(o)}, nil
		}
		return trimmed[T]{}, fmt.Errorf("read an object: unexpected type %T", object)
	}
}

// Event is a kind of event from a watch.
type Event string

const (
	// Added: the watch delivers a new object.
	Added Event = "added"
	// Modified: an object changed.
	Modified Event = "modified"
	// Deleted: the object is gone, or no longer matches the selector.
	Deleted Event = "deleted"
	// Bookmark: the watch is alive.
	Bookmark Event = "bookmark"
	// List: all objects of a namespace at once.
	List Event = "list"
)

// Events returns all kinds of events.
func Events() []Event { return []Event{Added, Modified, Deleted, Bookmark, List} }
