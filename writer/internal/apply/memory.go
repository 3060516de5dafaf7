package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

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

// newer tells whether resource version a is newer than b, as far as that can
// be told (KEP-5504).
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
