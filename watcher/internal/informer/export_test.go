package informer

import "k8s.io/client-go/tools/cache"

// reflectorStore has the methods that a reflector calls.
type reflectorStore interface {
	cache.ReflectorStore
	cache.ReflectorBookmarkStore
	cache.TransformingStore
}

// Store returns the store of a namespace's reflector.
func (i *Informer[T]) Store(namespace string) reflectorStore { return i.namespaces[namespace] }

// Refuse simulates a namespace that the watcher may not read.
func (i *Informer[T]) Refuse(namespace string) { i.namespaces[namespace].forbid() }
