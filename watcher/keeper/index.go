package keeper

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// index is safe for concurrent use. It uses slices, which need less memory than sets.
type index struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]object
	byName  map[types.NamespacedName][]ranked // sorted by rank and object
}

// object is an object with the names that it refers to.
type object struct {
	rank  int64
	names []types.NamespacedName
}

// ranked is one of the objects that refer to a name.
type ranked struct {
	rank   int64
	object types.NamespacedName
}

// newIndex returns an empty index.
func newIndex() *index {
	return &index{objects: map[types.NamespacedName]object{}, byName: map[types.NamespacedName][]ranked{}}
}

// set records the rank of an object and the names that it refers to. It returns the names that it refers to or
// referred to, or nothing if it is unchanged. An object without names is forgotten. It compares few objects,
// because a user may create any number with the same name.
func (x *index) set(
	name types.NamespacedName, rank int64, names ...types.NamespacedName,
) (changed []types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.objects[name]
	if slices.Equal(before.names, names) && (before.rank == rank || len(names) == 0) {
		return nil
	}
	for _, n := range before.names {
		if at, found := x.find(n, ranked{before.rank, name}); found {
			x.byName[n] = slices.Delete(x.byName[n], at, at+1)
		}
		if len(x.byName[n]) == 0 {
			delete(x.byName, n)
		}
	}
	for _, n := range names {
		at, _ := x.find(n, ranked{rank, name})
		x.byName[n] = slices.Insert(x.byName[n], at, ranked{rank, name})
	}
	x.objects[name] = object{rank, names}
	if len(names) == 0 {
		delete(x.objects, name)
	}
	return slices.Concat(before.names, names)
}

// find returns the position of an object among those that refer to a name.
func (x *index) find(name types.NamespacedName, o ranked) (at int, found bool) {
	return slices.BinarySearchFunc(x.byName[name], o, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.object.Namespace, b.object.Namespace),
			cmp.Compare(a.object.Name, b.object.Name))
	})
}

// first returns the first object that refers to a name, and whether there is one.
func (x *index) first(name types.NamespacedName) (first types.NamespacedName, found bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if all := x.byName[name]; len(all) > 0 {
		return all[0].object, true
	}
	return first, false
}

// of returns the objects that refer to a name, sorted by rank and name.
func (x *index) of(name types.NamespacedName) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]types.NamespacedName, len(x.byName[name]))
	for i, o := range x.byName[name] {
		all[i] = o.object
	}
	return all
}
