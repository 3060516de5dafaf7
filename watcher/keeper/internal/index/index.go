// Package index finds objects by what they name: Watchers by their ConfigMap, pods
// by the Watchers whose sidecars they have.
package index

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Index is safe for concurrent use. Slices are small, and take a fraction of the
// memory of sets.
type Index struct {
	mu sync.Mutex
	// of each object what it names, and the other way round.
	of map[types.NamespacedName][]types.NamespacedName
	by map[types.NamespacedName][]types.NamespacedName
}

// New returns an empty index.
func New() *Index {
	return &Index{
		of: map[types.NamespacedName][]types.NamespacedName{},
		by: map[types.NamespacedName][]types.NamespacedName{},
	}
}

// Set notes what an object names, in place of what it named before, and returns
// that. With no names the object is forgotten.
func (x *Index) Set(object types.NamespacedName, names ...types.NamespacedName) (before []types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before = x.of[object]
	if slices.Equal(before, names) {
		return before
	}
	for _, name := range before {
		others := slices.DeleteFunc(x.by[name], func(o types.NamespacedName) bool { return o == object })
		if x.by[name] = others; len(others) == 0 {
			delete(x.by, name)
		}
	}
	for _, name := range names {
		x.by[name] = append(x.by[name], object)
	}
	if x.of[object] = names; len(names) == 0 {
		delete(x.of, object)
	}
	return before
}

// Of returns the objects that name something, sorted.
func (x *Index) Of(name types.NamespacedName) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(slices.Values(x.by[name]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
}
