package store

import "github.com/kv8s/curl-me-that/watcher/internal/informer"

// Filler is what the watch of a namespace fills.
func (s *Store[T]) Filler(scope string) informer.Store { return filler[T]{s, scope} }
