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
	// objectsSize and objectsBytes bound the objects that are kept, and objectsTTL
	// is for how long: it only has to span the results of one object that come one
	// after the other.
	objectsSize  = 4096
	objectsBytes = 32 << 20
	objectsTTL   = 30 * time.Second
)

// Objects is the metadata of objects after our own last patch. It may be out of
// date; a patch that is made from it is refused then. It is kept as it came, since
// most of it is never read again.
type Objects struct {
	clock clock.Clock

	mu      sync.Mutex
	objects *simplelru.LRU[types.NamespacedName, object]
	bytes   int
}

// object is what is kept of one.
type object struct {
	*metav1.ObjectMeta
	until time.Time
	bytes int
}

// overhead is what an object takes in memory beyond its encoded size, in bytes.
const overhead = 1 << 10

// NewObjects returns an empty cache.
func NewObjects(clock clock.Clock) *Objects {
	c := &Objects{clock: clock}
	c.objects, _ = simplelru.NewLRU(objectsSize, func(_ types.NamespacedName, o object) { c.bytes -= o.bytes }) // only a size below 1 is refused
	return c
}

// Put keeps metadata, and drops what was used longest ago while all together is
// too large.
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

// Get returns the metadata of an object, which is not to be changed.
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
