package informer

// Store is what the reflector of a namespace fills.
func (s *Informer[T]) Store(namespace string) reflectorStore { return store[T]{s, namespace} }

// Refuse takes note of a namespace that may not be read.
func (s *Informer[T]) Refuse(namespace string) { s.refuse(namespace) }
