package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// expiring is a cache of limited size whose entries expire. A lost entry costs a read, a second Event, more attempts,
// or a late failure in the status until the next fetch.
type expiring[K comparable, V any] struct {
	entries *cache.LRUExpireCache
	ttl     time.Duration
}

// newExpiring returns an empty cache.
func newExpiring[K comparable, V any](size int, ttl time.Duration) expiring[K, V] {
	return expiring[K, V]{entries: cache.NewLRUExpireCache(size), ttl: ttl}
}

// Get returns the value of a key, or the zero value.
func (e expiring[K, V]) Get(key K) V {
	entry, _ := e.entries.Get(key)
	value, _ := entry.(V)
	return value
}

// Put sets the value of a key.
func (e expiring[K, V]) Put(key K, value V) { e.entries.Add(key, value, e.ttl) }

// Drop removes a key.
func (e expiring[K, V]) Drop(key K) { e.entries.Remove(key) }

// keyID identifies a key of a ConfigMap.
type keyID struct {
	UID types.UID
	Key string
}

// keyIDOf returns the key of an item.
func keyIDOf(i plan.Item) keyID {
	return keyID{UID: types.UID(i.Result.GetWant().GetUid()), Key: i.Key.Key}
}
