package informer

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Informer holds the annotated objects of all namespaces that are watched. It is
// safe for concurrent use.
type Informer struct {
	reader *Reader
	notify func(name types.NamespacedName, live bool)

	pulses map[string]*Pulse // by scope: that of its watch

	mu      sync.RWMutex
	objects map[types.NamespacedName]*Object
	watched map[string]int      // by scope: objects that its watch delivers, whether annotated or not
	waiting map[string]struct{} // scopes without a first list
	refused map[string]struct{} // those of them that may not be read
	synced  chan struct{}
	// complete reports that synced is closed.
	complete bool
}

// Config of an Informer.
type Config struct {
	// Scopes are namespaces, or one "" for all.
	Scopes []string
}

// Deps is what an Informer works with.
type Deps struct {
	// Reader makes objects of metadata.
	Reader *Reader
	// Notify is called for each change: live for one that the watch delivered,
	// not live for one found in a list.
	Notify func(name types.NamespacedName, live bool)
}

// New returns an informer that holds nothing yet.
func New(c Config, d Deps) *Informer {
	s := &Informer{
		reader:  d.Reader,
		notify:  d.Notify,
		objects: map[types.NamespacedName]*Object{},
		watched: map[string]int{},
		pulses:  map[string]*Pulse{},
		waiting: map[string]struct{}{},
		refused: map[string]struct{}{},
		synced:  make(chan struct{}),
	}
	for _, scope := range c.Scopes {
		s.waiting[scope] = struct{}{}
		s.pulses[scope] = NewPulse(d.Reader.Now)
	}
	return s
}

// Get returns an object, or nil when it is gone or does not concern us.
func (s *Informer) Get(name types.NamespacedName) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[name]
}

// Names returns the names of all objects.
func (s *Informer) Names() []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]types.NamespacedName, 0, len(s.objects))
	for name := range s.objects {
		names = append(names, name)
	}
	return names
}

// Each calls visit for every object. It holds a lock, so visit must be quick.
func (s *Informer) Each(visit func(*Object)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, o := range s.objects {
		visit(o)
	}
}

// Len returns the number of objects.
func (s *Informer) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

// Watched returns the number of objects in the sight of all watches, those that
// do not concern us included.
func (s *Informer) Watched() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, w := range s.watched {
		n += w
	}
	return n
}

// Invalid returns the number of objects of whose annotations something cannot be
// read.
func (s *Informer) Invalid() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for _, o := range s.objects {
		if o.Invalid != nil || o.Request.Refuses() {
			n++
		}
	}
	return n
}

// Silence returns how long ago the watches have given a sign of life: the
// longest of all scopes; 0 before they begin.
func (s *Informer) Silence() time.Duration {
	longest := time.Duration(0)
	for _, pulse := range s.pulses {
		longest = max(longest, pulse.Silence())
	}
	return longest
}

// Synced is closed when every scope has been listed once, but for those that may
// not be read while others may: one namespace holds up no other.
func (s *Informer) Synced() <-chan struct{} { return s.synced }

// Listed reports whether a namespace has been listed, so that an object which is
// not there is gone.
func (s *Informer) Listed(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, waits := s.waiting[namespace]
	_, all := s.waiting[""]
	return !waits && !all
}

// refuse takes note of a scope that may not be read.
func (s *Informer) refuse(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.waiting[scope]; waits {
		s.refused[scope] = struct{}{}
		s.checkSynced()
	}
}

// checkSynced closes synced when there is nothing left to wait for. The caller
// holds the lock.
func (s *Informer) checkSynced() {
	if s.complete || len(s.waiting) > len(s.refused) || len(s.waiting) == len(s.pulses) {
		return
	}
	s.complete = true
	close(s.synced)
}

// noteLife notes a sign of life of the watch of a scope.
func (s *Informer) noteLife(scope string) { s.pulses[scope].Beat() }

// put stores an object, or removes it when it does not concern us, and reports
// whether that was a change. Resource versions that are equal are the same
// version: a watch that comes back may deliver thousands of them again.
func (s *Informer) put(name types.NamespacedName, o *Object) bool {
	old := s.objects[name]
	switch {
	case o == nil && old == nil:
		return false
	case o == nil:
		delete(s.objects, name)
		return true
	case old != nil && old.UID == o.UID && old.ResourceVersion == o.ResourceVersion:
		return false
	}
	s.objects[name] = o
	return true
}

// reflectorStore is the part of the informer that one reflector fills.
type reflectorStore struct {
	*Informer
	namespace string
}

var (
	_ cache.ReflectorStore         = reflectorStore{}
	_ cache.ReflectorBookmarkStore = reflectorStore{}
	_ cache.TransformingStore      = reflectorStore{}
)

// Transformer trims objects before a list of them piles up. Each is a sign of
// life: a long list may take its time.
func (s reflectorStore) Transformer() cache.TransformFunc {
	trim := s.reader.Transform()
	return func(obj any) (any, error) {
		s.noteLife(s.namespace)
		return trim(obj)
	}
}

// Add takes an object that is new to the watch.
func (s reflectorStore) Add(obj any) error { return s.take(obj, Added, 1) }

// Update takes an object that the watch knows.
func (s reflectorStore) Update(obj any) error { return s.take(obj, Modified, 0) }

func (s reflectorStore) take(obj any, e Event, more int) error {
	s.count(e, more)
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("store ConfigMap: unexpected type %T", obj)
	}
	s.pulses[s.namespace].Note(m.ResourceVersion)
	return s.apply(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, s.reader.Read(m))
}

// Delete takes an object that is gone, or that the selector no longer matches.
func (s reflectorStore) Delete(obj any) error {
	s.count(Deleted, -1)
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("forget ConfigMap: unexpected type %T", obj)
	}
	return s.apply(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, nil)
}

// count takes note of an event that brings objects into sight, or out of it.
func (s reflectorStore) count(e Event, more int) {
	if s.reader.Count != nil {
		s.reader.Count(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[s.namespace] = max(0, s.watched[s.namespace]+more)
}

func (s reflectorStore) apply(name types.NamespacedName, o *Object) error {
	s.noteLife(s.namespace)
	s.mu.Lock()
	changed := s.put(name, o)
	s.mu.Unlock()
	if changed {
		s.notify(name, true)
	}
	return nil
}

// Replace takes a whole list; what is missing from it is gone.
func (s reflectorStore) Replace(list []any, version string) error {
	listed := map[types.NamespacedName]*Object{}
	for _, obj := range list {
		var o *Object
		switch m := obj.(type) {
		case trimmed:
			o = m.object
		case *metav1.PartialObjectMetadata:
			o = s.reader.Read(m)
		default:
			return fmt.Errorf("list ConfigMaps: unexpected type %T", obj)
		}
		if o != nil {
			o.Listed = true
			listed[o.NamespacedName] = o
		}
	}
	var changed []types.NamespacedName
	s.noteLife(s.namespace)
	s.count(List, 0)
	s.pulses[s.namespace].Reset(version)
	s.mu.Lock()
	s.watched[s.namespace] = len(list)
	for name := range s.objects {
		if _, still := listed[name]; !still && (s.namespace == "" || s.namespace == name.Namespace) {
			delete(s.objects, name)
			changed = append(changed, name)
		}
	}
	for name, o := range listed {
		if s.put(name, o) {
			changed = append(changed, name)
		}
	}
	delete(s.waiting, s.namespace)
	delete(s.refused, s.namespace)
	s.checkSynced()
	s.mu.Unlock()
	for _, name := range changed {
		s.notify(name, false)
	}
	return nil
}

// Bookmark is a sign of life.
func (s reflectorStore) Bookmark(version string) error {
	s.count(Bookmark, 0)
	s.pulses[s.namespace].Note(version)
	s.noteLife(s.namespace)
	return nil
}

// Resync does nothing: there is no resync period.
func (s reflectorStore) Resync() error { return nil }
