package cache

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// objectsSize and objectsBytes limit the cached objects. objectsTTL only has to span
	// consecutive results of one object.
	objectsSize  = 4096
	objectsBytes = 32 << 20
	objectsTTL   = 30 * time.Second
)

// Objects caches the metadata of objects after our last patch. The API server refuses a patch of
// outdated metadata. The cache keeps it undecoded, because most of it is never read again.
type Objects struct {
	clock clock.Clock

	mu      sync.Mutex
	objects *simplelru.LRU[types.NamespacedName, object]
	bytes   int
}

type object struct {
	*metav1.ObjectMeta
	until time.Time
	bytes int
}

// overhead is the memory of an object beyond its encoded size, in bytes.
const overhead = 1 << 10

// NewObjects returns an empty cache.
func NewObjects(clock clock.Clock) *Objects {
	c := &Objects{clock: clock}
	c.objects, _ = simplelru.NewLRU(objectsSize,
		func(_ types.NamespacedName, o object) { c.bytes -= o.bytes }) // only a size below 1 is refused
	return c
}

// Put caches metadata and drops the least recently used entries over the limit.
func (c *Objects) Put(ref types.NamespacedName, m *metav1.ObjectMeta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects.Remove(ref)
	kept := object{ObjectMeta: m, until: c.clock.Now().Add(objectsTTL), bytes: m.Size() + overhead}
	c.objects.Add(ref, kept)
	for c.bytes += kept.bytes; c.bytes > objectsBytes; {
		c.objects.RemoveOldest()
	}
}

// Drop removes an object.
func (c *Objects) Drop(ref types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects.Remove(ref)
}

// Get returns the metadata of an object. Callers must not change it.
func (c *Objects) Get(ref types.NamespacedName) (*metav1.ObjectMeta, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, found := c.objects.Get(ref)
	if !found || c.clock.Now().After(kept.until) {
		c.objects.Remove(ref)
		return nil, false
	}
	return kept.ObjectMeta, true
}
