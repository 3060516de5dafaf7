// Package informer keeps what its user needs of the objects of one kind, filled by
// one reflector for each namespace that is watched.
package informer

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Informer holds what is kept of the objects of all namespaces that are watched. It
// is safe for concurrent use.
type Informer[T Kept] struct {
	trim        func(object any) (trimmed[T], error)
	notify      func(name types.NamespacedName, live bool)
	count       func(Event)
	replaced    func(old, current T)
	skipRefused bool

	liveness map[string]*liveness // by namespace: that of its watch

	mu      sync.RWMutex
	objects map[types.NamespacedName]T
	watched map[string]int  // by namespace: objects that its watch delivers, whether kept or not
	waiting map[string]bool // namespaces without a first list, and whether they may not be read
	synced  chan struct{}
	inSync  func() // closes synced
}

// Config of an Informer.
type Config struct {
	// Namespaces to watch; empty: all.
	Namespaces []string
	// SkipRefused lets an Informer be synced without the namespaces that may not be
	// read while others may: one namespace holds up no other.
	SkipRefused bool
}

// Deps is what an Informer of objects of type O works with.
type Deps[O metav1.Object, T Kept] struct {
	// Read returns what is kept of an object; nil: nothing.
	Read func(object O) T
	// Notify is called for each change: live for one that the watch delivered,
	// not live for one found in a list.
	Notify func(name types.NamespacedName, live bool)
	// Replaced, if set, is called for each change of what is kept, in order; nil: nothing is.
	// It holds a lock, so it must be quick.
	Replaced func(old, current T)
	// Now is the clock.
	Now func() time.Time
	// Count, if set, is called for all that a watch delivers.
	Count func(Event)
}

// New returns an informer that holds nothing yet.
func New[O metav1.Object, T Kept](c Config, d Deps[O, T]) *Informer[T] {
	s := &Informer[T]{
		trim: transform(d.Read), notify: d.Notify, count: d.Count, replaced: d.Replaced, skipRefused: c.SkipRefused,
		objects:  map[types.NamespacedName]T{},
		watched:  map[string]int{},
		liveness: map[string]*liveness{},
		waiting:  map[string]bool{},
		synced:   make(chan struct{}),
	}
	s.inSync = sync.OnceFunc(func() { close(s.synced) })
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		s.waiting[namespace] = false
		s.liveness[namespace] = &liveness{now: d.Now}
	}
	return s
}

// Get returns what is kept of an object; nil: nothing, or it is gone.
func (s *Informer[T]) Get(name types.NamespacedName) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[name]
}

// Names returns the names of all objects.
func (s *Informer[T]) Names() []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(make([]types.NamespacedName, 0, len(s.objects)), maps.Keys(s.objects))
}

// Each calls visit for every object. It holds a lock, so visit must be quick.
func (s *Informer[T]) Each(visit func(T)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, o := range s.objects {
		visit(o)
	}
}

// Len returns the number of objects.
func (s *Informer[T]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

// Watched returns the number of objects in the sight of all watches, those of which
// nothing is kept included.
func (s *Informer[T]) Watched() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, w := range s.watched {
		n += w
	}
	return n
}

// Silence returns how long ago the watches have given a sign of life: the
// longest of all namespaces; 0 before they begin.
func (s *Informer[T]) Silence() time.Duration {
	longest := time.Duration(0)
	for _, liveness := range s.liveness {
		longest = max(longest, liveness.silence())
	}
	return longest
}

// Synced is closed when every namespace has been listed once, but for those that
// SkipRefused is about.
func (s *Informer[T]) Synced() <-chan struct{} { return s.synced }

// Listed reports whether a namespace has been listed, so that an object which is
// not there is gone.
func (s *Informer[T]) Listed(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, waits := s.waiting[namespace]
	_, all := s.waiting[""]
	return !waits && !all
}

// Put takes the answer to a write of one's own, so that the next look does not
// find what was before it. The watch delivers it, too; what it has gone past is
// not taken, since the object may be gone.
func (s *Informer[T]) Put(object any) {
	o, err := s.trim(object)
	if err != nil || o.isNothing() {
		return
	}
	liveness, found := s.liveness[o.name.Namespace]
	if !found {
		liveness = s.liveness[""]
	}
	s.mu.Lock()
	changed := liveness.version() < o.version && s.put(o)
	s.mu.Unlock()
	if changed { // the answer may hold an edit that was not delivered yet
		s.notify(o.name, true)
	}
}

// put stores what is kept of an object unless that is of this version or a later
// one already, and reports whether that was a change: a watch that comes back may
// deliver thousands of versions again. What has no number is taken. The caller holds
// the lock.
func (s *Informer[T]) put(o trimmed[T]) bool {
	if o.isNothing() {
		return s.drop(o.name)
	}
	if old, found := s.objects[o.name]; found && old.meta().UID == o.kept.meta().UID && o.version > 0 && old.meta().Version >= o.version {
		return false
	}
	s.set(o.name, o.kept)
	return true
}

// set stores what is kept of an object. The caller holds the lock.
func (s *Informer[T]) set(name types.NamespacedName, kept T) {
	if s.replaced != nil {
		s.replaced(s.objects[name], kept)
	}
	if s.objects[name] = kept; kept == *new(T) {
		delete(s.objects, name)
	}
}

// drop forgets an object, and reports whether there was one. The caller holds the
// lock.
func (s *Informer[T]) drop(name types.NamespacedName) bool {
	_, found := s.objects[name]
	s.set(name, *new(T))
	return found
}

// refuse takes note of a namespace that may not be read.
func (s *Informer[T]) refuse(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.waiting[namespace]; waits && s.skipRefused {
		s.waiting[namespace] = true
		s.checkSynced()
	}
}

// checkSynced closes synced when there is nothing left to wait for. The caller
// holds the lock.
func (s *Informer[T]) checkSynced() {
	if len(s.waiting) == len(s.liveness) {
		return
	}
	for _, refused := range s.waiting {
		if !refused {
			return
		}
	}
	s.inSync()
}
