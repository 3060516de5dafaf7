// Package cache keeps what the writer learned from earlier batches, to save requests. Every promise
// holds without it.
package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Expiring is a cache of limited size whose entries expire.
type Expiring[K comparable, V any] struct {
	entries *cache.LRUExpireCache
	ttl     time.Duration
}

// NewExpiring returns an empty cache.
func NewExpiring[K comparable, V any](size int, ttl time.Duration) Expiring[K, V] {
	return Expiring[K, V]{entries: cache.NewLRUExpireCache(size), ttl: ttl}
}

// Get returns the value of a key, or the zero value.
func (c Expiring[K, V]) Get(key K) V {
	entry, _ := c.entries.Get(key)
	value, _ := entry.(V)
	return value
}

// Put sets the value of a key.
func (c Expiring[K, V]) Put(key K, value V) { c.entries.Add(key, value, c.ttl) }

// Drop removes a key.
func (c Expiring[K, V]) Drop(key K) { c.entries.Remove(key) }

// Key is a key of a ConfigMap.
type Key struct {
	UID types.UID
	Key string
}

// Newer reports whether resource version a is known to be newer than b (KEP-5504).
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
