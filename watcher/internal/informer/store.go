package informer

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/proto/process/kube"
)

// store is filled by the reflector of one namespace.
type store[T Kept] struct {
	*Informer[T]
	namespace string
}

// reflectorStore has the methods that a reflector calls.
type reflectorStore interface {
	cache.ReflectorStore
	cache.ReflectorBookmarkStore
	cache.TransformingStore
}

// Transformer trims objects while a list is received. Each object counts as a response, because a long
// list takes time.
func (s store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		s.liveness[s.namespace].beat()
		return s.trim(object)
	}
}

// Add caches a new object.
func (s store[T]) Add(object any) error { return s.take(object, Added, 1) }

// Update caches a changed object.
func (s store[T]) Update(object any) error { return s.take(object, Modified, 0) }

// Delete removes an object that is gone or no longer matches the selector.
func (s store[T]) Delete(object any) error { return s.take(object, Deleted, -1) }

// take handles an event that changes the number of watched objects by more.
func (s store[T]) take(object any, e Event, more int) error {
	o, err := s.trim(object)
	if err != nil {
		return err
	}
	if e == Deleted {
		o.kept = *new(T)
	}
	s.noteEvent(e)
	s.mu.Lock()
	s.watched[s.namespace] = max(0, s.watched[s.namespace]+more)
	changed := s.put(o)
	s.liveness[s.namespace].note(o.version)
	s.mu.Unlock()
	if changed {
		s.notify(o.name, true)
	}
	return nil
}

// Replace replaces all objects by a list.
func (s store[T]) Replace(list []any, version string) error {
	listed := map[types.NamespacedName]T{}
	for _, object := range list {
		o, err := s.trim(object)
		if err != nil {
			return err
		}
		if !o.isEmpty() {
			o.kept.meta().Listed = true
			listed[o.name] = o.kept
		}
	}
	s.noteEvent(List)
	s.mu.Lock()
	s.watched[s.namespace] = len(list)
	changed := s.replace(listed)
	s.liveness[s.namespace].reset(kube.Version(version))
	delete(s.waiting, s.namespace)
	s.checkSynced()
	s.mu.Unlock()
	for _, name := range changed {
		s.notify(name, false)
	}
	return nil
}

// replace caches a list, and returns the names of changed objects. A list wins even with lower versions,
// as after a restore. An object of kind Namespace belongs to itself. The caller holds the lock.
func (s store[T]) replace(listed map[types.NamespacedName]T) []types.NamespacedName {
	var changed []types.NamespacedName
	for name := range s.objects {
		if _, still := listed[name]; !still && (s.namespace == "" || s.namespace == cmp.Or(name.Namespace, name.Name)) {
			s.drop(name)
			changed = append(changed, name)
		}
	}
	for name, o := range listed {
		old, found := s.objects[name]
		if !found || old.meta().UID != o.meta().UID || old.meta().Version != o.meta().Version || o.meta().Version == 0 {
			s.objects[name] = o
			changed = append(changed, name)
		}
	}
	return changed
}

// Bookmark records the version of a bookmark.
func (s store[T]) Bookmark(version string) error {
	s.noteEvent(Bookmark)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.liveness[s.namespace].note(kube.Version(version))
	return nil
}

// Resync does nothing: there is no resync period.
func (s store[T]) Resync() error { return nil }

// noteEvent records a response of the watch.
func (s store[T]) noteEvent(e Event) {
	s.liveness[s.namespace].beat()
	if s.count != nil {
		s.count(e)
	}
}
