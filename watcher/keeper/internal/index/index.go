// Package index finds objects by the names that they refer to: Watchers by their ConfigMap, pods by
// the Watchers whose sidecars they have.
package index

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Index is safe for concurrent use. It uses small slices, which need less memory than sets.
type Index struct {
	mu      sync.Mutex
	names   map[types.NamespacedName][]types.NamespacedName // by object
	objects map[types.NamespacedName][]types.NamespacedName // by name
}

// New returns an empty index.
func New() *Index {
	return &Index{
		names:   map[types.NamespacedName][]types.NamespacedName{},
		objects: map[types.NamespacedName][]types.NamespacedName{},
	}
}

// Set records the names that an object refers to and returns the previous ones. An object without
// names is forgotten.
func (x *Index) Set(object types.NamespacedName, names ...types.NamespacedName) (before []types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before = x.names[object]
	if slices.Equal(before, names) {
		return before
	}
	for _, name := range before {
		others := slices.DeleteFunc(x.objects[name], func(o types.NamespacedName) bool { return o == object })
		if x.objects[name] = others; len(others) == 0 {
			delete(x.objects, name)
		}
	}
	for _, name := range names {
		x.objects[name] = append(x.objects[name], object)
	}
	if x.names[object] = names; len(names) == 0 {
		delete(x.names, object)
	}
	return before
}

// Of returns the objects that refer to a name, sorted.
func (x *Index) Of(name types.NamespacedName) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(slices.Values(x.objects[name]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
}
