// Package cache keeps what the writer knows beyond one batch: what objects were
// like after its last patch, and which fetches found nothing new. Both only save
// requests: without them every promise holds as well.
package cache

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	// confirmedSize and confirmedTTL bound the confirmed fences: enough for
	// results that come back after an outage.
	confirmedSize = 16384
	confirmedTTL  = 10 * time.Minute
	// refusedSize and refusedTTL bound the refused keys: for about as long as the
	// Events about them are kept.
	refusedSize = 4096
	refusedTTL  = time.Hour
)

// Confirmed holds by key the newest fetch that found what was there
// already. A failure from before that comes late must not be taken for a new
// one: the fetcher, for which all is well, would never report its end.
type Confirmed struct {
	fetches *cache.LRUExpireCache
}

// objectKey is a key of an object.
type objectKey struct {
	uid types.UID
	key string
}

// NewConfirmed returns an empty cache.
func NewConfirmed(clock clock.Clock) Confirmed {
	return Confirmed{fetches: cache.NewLRUExpireCacheWithClock(confirmedSize, clock)}
}

// Get returns the newest confirmation of a key; zero: none.
func (c Confirmed) Get(uid types.UID, key string) plan.Confirmation {
	value, _ := c.fetches.Get(objectKey{uid: uid, key: key})
	confirmation, _ := value.(plan.Confirmation)
	return confirmation
}

// Put keeps a confirmation if its fence is newer than the one that is known.
func (c Confirmed) Put(uid types.UID, key string, confirmation plan.Confirmation) {
	if confirmation.Fence.Newer(c.Get(uid, key).Fence) {
		c.fetches.Add(objectKey{uid: uid, key: key}, confirmation, confirmedTTL)
	}
}

// Refused holds the keys that were reported as ones that cannot be written, where
// that could not be recorded in the status.
type Refused struct {
	keys *cache.LRUExpireCache
}

// NewRefused returns an empty cache.
func NewRefused(clock clock.Clock) Refused {
	return Refused{keys: cache.NewLRUExpireCacheWithClock(refusedSize, clock)}
}

// Put adds a key.
func (c Refused) Put(uid types.UID, key string) {
	c.keys.Add(objectKey{uid: uid, key: key}, struct{}{}, refusedTTL)
}

// Take removes a key and reports whether it was there.
func (c Refused) Take(uid types.UID, key string) bool {
	_, found := c.keys.Get(objectKey{uid: uid, key: key})
	c.keys.Remove(objectKey{uid: uid, key: key})
	return found
}

// Faults counts, by object, the requests that the API server failed to serve in
// a row.
type Faults struct {
	counts *cache.LRUExpireCache
}

const (
	// faultsSize and faultsTTL bound what is counted: enough for an object whose
	// results come back every few seconds.
	faultsSize = 1024
	faultsTTL  = 2 * time.Minute
)

// NewFaults returns an empty cache.
func NewFaults(clock clock.Clock) Faults {
	return Faults{counts: cache.NewLRUExpireCacheWithClock(faultsSize, clock)}
}

// Add counts one more and returns how many there are.
func (c Faults) Add(ref types.NamespacedName) int {
	value, _ := c.counts.Get(ref)
	n, _ := value.(int)
	c.counts.Add(ref, n+1, faultsTTL)
	return n + 1
}

// Drop removes those of an object.
func (c Faults) Drop(ref types.NamespacedName) { c.counts.Remove(ref) }

// Newer reports whether resource version a is newer than b, as far as that can
// be known (KEP-5504).
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
