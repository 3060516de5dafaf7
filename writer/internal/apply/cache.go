package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
)

// expiring is a cache of limited size whose entries expire. It only saves requests: with an empty cache the writer
// does the same, with more reads.
type expiring[K comparable, V any] struct {
	entries *cache.LRUExpireCache
	ttl     time.Duration
}

// newExpiring returns an empty cache.
func newExpiring[K comparable, V any](size int, ttl time.Duration) expiring[K, V] {
	return expiring[K, V]{entries: cache.NewLRUExpireCache(size), ttl: ttl}
}

// Get returns the value of a key, or the zero value.
func (c expiring[K, V]) Get(key K) V {
	entry, _ := c.entries.Get(key)
	value, _ := entry.(V)
	return value
}

// Put sets the value of a key.
func (c expiring[K, V]) Put(key K, value V) { c.entries.Add(key, value, c.ttl) }

// Drop removes a key.
func (c expiring[K, V]) Drop(key K) { c.entries.Remove(key) }

// key identifies a key of a ConfigMap.
type key struct {
	UID types.UID
	Key string
}
