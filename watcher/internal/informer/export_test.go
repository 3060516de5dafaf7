package informer

import "k8s.io/client-go/tools/cache"

// reflectorStore has the methods that a reflector calls.
type reflectorStore interface {
	cache.ReflectorStore
	cache.ReflectorBookmarkStore
	cache.TransformingStore
}

// Store returns the store of a namespace's reflector.
func (s *Informer[T]) Store(namespace string) reflectorStore { return s.namespaces[namespace] }

// Refuse simulates a namespace that the watcher may not read.
func (s *Informer[T]) Refuse(namespace string) { s.namespaces[namespace].forbid() }
