package informer

import "k8s.io/client-go/tools/cache"

// Scope returns what a reflector of a namespace fills.
func (s *Informer) Scope(namespace string) cache.TransformingStore {
	return reflectorStore{s, namespace}
}
