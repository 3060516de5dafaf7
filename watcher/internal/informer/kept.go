package informer

import (
	"fmt"
	"strconv"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Meta is what is kept of every object.
type Meta struct {
	types.NamespacedName
	UID types.UID
	// Version is the resource version, by which two versions can be compared.
	Version uint64
	// Listed: this version was found in a list, so that it may be older than the
	// time at which it was read.
	Listed bool
}

// MetaOf returns the Meta of an object.
func MetaOf(object metav1.Object) Meta {
	return Meta{NamespacedName: nameOf(object), UID: object.GetUID(), Version: Version(object.GetResourceVersion())}
}

func (m *Meta) meta() *Meta { return m }

// ResourceVersion returns the version as the API server takes it back; empty: it was no
// number, so that nothing can be bound to it.
func (m *Meta) ResourceVersion() string {
	if m.Version == 0 {
		return ""
	}
	return strconv.FormatUint(m.Version, 10)
}

// Kept is what is kept of one object: a pointer to a struct that embeds the Meta of
// the object. It is not changed after it was stored.
type Kept interface {
	comparable
	meta() *Meta
}

// Version returns a resource version as a number, by which versions of one kind
// can be compared (KEP-5504); 0: it is none.
func Version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// nameOf returns the name of an object, with a namespace that all share the text of.
func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: unique.Make(object.GetNamespace()).Value(), Name: object.GetName()}
}

// trimmed is what is left of an object while a list of them piles up: what is
// kept of it at the end, or nothing, as of most.
type trimmed[T Kept] struct {
	metav1.Object // empty, shared by all

	name    types.NamespacedName
	version uint64
	kept    T
}

// GetNamespace is half of what the cache keeps a list under.
func (t trimmed[T]) GetNamespace() string { return t.name.Namespace }

// GetName is the other half.
func (t trimmed[T]) GetName() string { return t.name.Name }

// isNothing reports whether nothing is kept of the object.
func (t trimmed[T]) isNothing() bool { return t.kept == *new(T) }

// transform returns a function that trims objects of type O, and leaves what is trimmed
// as it is. The record of its owners alone may take more than what is kept of an object.
func transform[O metav1.Object, T Kept](read func(O) T) func(any) (trimmed[T], error) {
	nothing := &metav1.ObjectMeta{}
	return func(object any) (trimmed[T], error) {
		switch o := object.(type) {
		case trimmed[T]:
			return o, nil
		case O:
			return trimmed[T]{nothing, nameOf(o), Version(o.GetResourceVersion()), read(o)}, nil
		}
		return trimmed[T]{}, fmt.Errorf("read an object: unexpected type %T", object)
	}
}
