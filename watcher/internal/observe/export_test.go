package observe

import "k8s.io/client-go/tools/cache"

// Scope returns what a reflector of a namespace fills.
func (s *Store) Scope(namespace string) cache.TransformingStore { return scope{s, namespace} }
