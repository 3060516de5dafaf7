// Package informer caches a part of each object of one kind, with one reflector for each watched
// namespace.
package informer

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Informer caches the objects of all watched namespaces. It is safe for concurrent use.
type Informer[T Cached] struct {
	trim          func(object any) (trimmed[T], error)
	notify        func(name types.NamespacedName, live bool)
	count         func(EventKind)
	now           func() time.Time
	skipForbidden bool
	// namespaces has "" for all, or each watched one.
	namespaces map[string]*namespace[T]

	mu      sync.RWMutex
	objects map[types.NamespacedName]T
	synced  chan struct{}
	inSync  func() // closes synced
}

// Config has the settings of an Informer.
type Config struct {
	Namespaces []string
	// SkipForbidden lets the Informer sync without forbidden namespaces if it may read at least one.
	SkipForbidden bool
}

// Deps are the dependencies of an Informer for objects of type O.
type Deps[O metav1.Object, T Cached] struct {
	// Read returns the part of an object to cache, or nil.
	Read func(object O) T
	// Notify is called for each change. live means that it comes from the watch, not from a list.
	Notify func(name types.NamespacedName, live bool)
	Now    func() time.Time
	// Count, if set, is called for each event of a watch.
	Count func(EventKind)
}

// New returns an empty informer.
func New[O metav1.Object, T Cached](c Config, d Deps[O, T]) *Informer[T] {
	i := &Informer[T]{
		trim: transform(d.Read), notify: d.Notify, count: d.Count, now: d.Now, skipForbidden: c.SkipForbidden,
		namespaces: map[string]*namespace[T]{}, objects: map[types.NamespacedName]T{}, synced: make(chan struct{}),
	}
	i.inSync = sync.OnceFunc(func() { close(i.synced) })
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, name := range namespaces {
		i.namespaces[name] = &namespace[T]{Informer: i, name: name}
	}
	return i
}

// namespaceOf returns the watched namespace that has the objects of a namespace.
func (i *Informer[T]) namespaceOf(name string) *namespace[T] {
	if n, found := i.namespaces[name]; found {
		return n
	}
	return i.namespaces[""]
}

// Get returns the cached part of an object, or nil.
func (i *Informer[T]) Get(name types.NamespacedName) T {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.objects[name]
}

// Names returns the names of all objects.
func (i *Informer[T]) Names() []types.NamespacedName {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.AppendSeq(make([]types.NamespacedName, 0, len(i.objects)), maps.Keys(i.objects))
}

// Each holds a lock while it calls visit.
func (i *Informer[T]) Each(visit func(T)) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, o := range i.objects {
		visit(o)
	}
}

// Len returns the number of objects.
func (i *Informer[T]) Len() int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.objects)
}

// Watched returns the number of objects that all watches deliver, cached or not.
func (i *Informer[T]) Watched() (sum int) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, n := range i.namespaces {
		sum += n.watched
	}
	return sum
}

// Silence returns the time since the last response, of the slowest namespace (0 before the first).
func (i *Informer[T]) Silence() (longest time.Duration) {
	for _, n := range i.namespaces {
		longest = max(longest, n.silence())
	}
	return longest
}

// Synced is closed when every namespace has been listed, except those skipped by SkipForbidden.
func (i *Informer[T]) Synced() <-chan struct{} { return i.synced }

// Listed reports whether a namespace has been listed or is not watched, so that a missing object is gone.
func (i *Informer[T]) Listed(name string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	n := i.namespaceOf(name)
	return n == nil || n.listed
}

// Put caches the response to our own write, so that the next reconciliation does not see the state
// before it. A version that the watch has passed is ignored, because the object may be gone.
func (i *Informer[T]) Put(object any) {
	o, err := i.trim(object)
	if err != nil || o.isEmpty() {
		return
	}
	i.mu.Lock()
	changed := i.namespaceOf(o.name.Namespace).latest.Load() < o.version && i.put(o)
	i.mu.Unlock()
	if changed { // the response may include an edit that the watch has not delivered yet
		i.notify(o.name, true)
	}
}

// put caches an object, unless the cache has this version or a later one, and reports whether the cache
// changed. A new watch may deliver thousands of versions again. The caller holds the lock.
func (i *Informer[T]) put(o trimmed[T]) bool {
	if o.isEmpty() {
		return i.drop(o.name)
	}
	if old, found := i.objects[o.name]; found && old.meta().UID == o.cached.meta().UID && o.version > 0 &&
		old.meta().Version >= o.version {
		return false
	}
	i.objects[o.name] = o.cached
	return true
}

// drop removes an object, and reports whether it was cached. The caller holds the lock.
func (i *Informer[T]) drop(name types.NamespacedName) bool {
	_, found := i.objects[name]
	delete(i.objects, name)
	return found
}

// checkSynced closes synced if no namespace is left to wait for. The caller holds the lock.
func (i *Informer[T]) checkSynced() {
	listed := false
	for _, n := range i.namespaces {
		if !n.listed && !n.forbidden {
			return
		}
		listed = listed || n.listed
	}
	if listed {
		i.inSync()
	}
}
