package informer

import "k8s.io/client-go/tools/cache"

// Scope returns what a reflector of a namespace fills.
func (s *Informer) Scope(namespace string) cache.TransformingStore {
	return reflectorStore{s, namespace}
}

// Trimmed returns what a list holds of an object after Transform; nil: nothing.
func Trimmed(obj any) *Object { return obj.(trimmed).object }
