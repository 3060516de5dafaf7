package informer

// Store returns the store of a namespace's reflector.
func (s *Informer[T]) Store(namespace string) reflectorStore { return store[T]{s, namespace} }

// Refuse simulates a namespace that the watcher may not read.
func (s *Informer[T]) Refuse(namespace string) { s.refuse(namespace) }
