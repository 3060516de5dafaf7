package cache

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	// objectsSize and objectsBytes bound the objects that are kept, and objectsTTL
	// is for how long: it only has to span the results of one object that come one
	// after the other.
	objectsSize  = 4096
	objectsBytes = 32 << 20
	objectsTTL   = 30 * time.Second
)

// Objects is what objects were like after our own last patch. An object in it
// may be out of date; a patch that is made from it is refused then.
type Objects struct {
	clock clock.Clock

	mu      sync.Mutex
	objects *simplelru.LRU[types.NamespacedName, object]
	bytes   int
}

// object is a kept object.
type object struct {
	*plan.Object
	until time.Time
	bytes int
}

// NewObjects returns an empty cache.
func NewObjects(clock clock.Clock) *Objects {
	c := &Objects{clock: clock}
	c.objects, _ = simplelru.NewLRU(objectsSize, func(_ types.NamespacedName, o object) { c.bytes -= o.bytes }) // only a size below 1 is refused
	return c
}

// Put keeps an object, and drops those that were used longest ago while all
// together are too large.
func (c *Objects) Put(ref types.NamespacedName, o *plan.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects.Remove(ref)
	kept := object{Object: o, until: c.clock.Now().Add(objectsTTL), bytes: o.Bytes()}
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

// Get returns a copy of an object.
func (c *Objects) Get(ref types.NamespacedName) (*plan.Object, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, found := c.objects.Get(ref)
	if !found || c.clock.Now().After(kept.until) {
		c.objects.Remove(ref)
		return nil, false
	}
	o := *kept.Object
	return &o, true
}
