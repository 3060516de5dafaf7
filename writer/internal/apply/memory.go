package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

const (
	// memorySize is how many objects are remembered.
	memorySize = 4096
	// memoryTTL is how long. It only has to span the results of one object
	// that come one after the other.
	memoryTTL = 30 * time.Second
)

// memory is what objects were like after our own last patch. An object in it
// may be out of date; a patch that is made from it is refused then.
type memory struct {
	objects *cache.LRUExpireCache
}

func newMemory(clock clock.Clock) memory {
	return memory{objects: cache.NewLRUExpireCacheWithClock(memorySize, clock)}
}

func (m memory) put(ref Ref, o *judge.Object) { m.objects.Add(ref, o, memoryTTL) }

func (m memory) drop(ref Ref) { m.objects.Remove(ref) }

func (m memory) get(ref Ref) (*judge.Object, bool) {
	value, found := m.objects.Get(ref)
	if !found {
		return nil, false
	}
	o, ok := value.(*judge.Object)
	return o, ok
}

// confirmations are the newest fences of fetches that found what was there
// already. A failure from before that comes late must not be taken for news:
// the fetcher, for which all is well, would never say that it is over.
type confirmations struct {
	fences *cache.LRUExpireCache
}

const (
	// confirmedSize and confirmedTTL bound what is remembered: enough for
	// results that come back after an outage.
	confirmedSize = 16384
	confirmedTTL  = 10 * time.Minute
)

// confirmed is a key of an object.
type confirmed struct {
	uid types.UID
	key string
}

func newConfirmations(clock clock.Clock) confirmations {
	return confirmations{fences: cache.NewLRUExpireCacheWithClock(confirmedSize, clock)}
}

func (c confirmations) get(uid types.UID, key string) status.Fence {
	value, _ := c.fences.Get(confirmed{uid: uid, key: key})
	fence, _ := value.(status.Fence)
	return fence
}

func (c confirmations) put(uid types.UID, key string, f status.Fence) {
	if f.Newer(c.get(uid, key)) {
		c.fences.Add(confirmed{uid: uid, key: key}, f, confirmedTTL)
	}
}

// newer tells whether resource version a is newer than b, as far as that can
// be told (KEP-5504).
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
