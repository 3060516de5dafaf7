package informer

import (
	"cmp"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/proto/kube"
)

// namespace is the state of the watch of one namespace, or of all. Its reflector fills the informer through it.
type namespace[T Cached] struct {
	*Informer[T]

	// name is empty for all.
	name string
	// seen is the time of the last response, in Unix nanoseconds (0: none), and latest the last version.
	seen   atomic.Int64
	latest atomic.Uint64
	// listing is the start of a list as a stream that has not ended, in Unix nanoseconds (0: none).
	listing atomic.Int64
	// The lock of the Informer guards the number of objects that the watch delivers, cached or not, whether the
	// namespace was listed, and whether it is forbidden.
	watched           int
	listed, forbidden bool
}

// recordResponse records a response.
func (n *namespace[T]) recordResponse() { n.seen.Store(n.now().UnixNano()) }

// silence returns the time since the last response (0 before the first).
func (n *namespace[T]) silence() time.Duration { return n.since(&n.seen) }

// since returns the time since a time in Unix nanoseconds (0: none).
func (n *namespace[T]) since(at *atomic.Int64) time.Duration {
	if nanos := at.Load(); nanos != 0 {
		return n.now().Sub(time.Unix(0, nanos))
	}
	return 0
}

// recordListing records whether a list as a stream has begun. Its start stays the same if it begins again.
func (n *namespace[T]) recordListing(begun bool) {
	if !begun {
		n.listing.Store(0)
		return
	}
	n.listing.CompareAndSwap(0, n.now().UnixNano())
}

// listingFor returns how long a list as a stream has not ended (0: there is none).
func (n *namespace[T]) listingFor() time.Duration { return n.since(&n.listing) }

// recordVersion records the version of a response. The caller holds the lock.
func (n *namespace[T]) recordVersion(version uint64) { n.latest.Store(max(n.latest.Load(), version)) }

// forbid records that the namespace is forbidden.
func (n *namespace[T]) forbid() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.skipForbidden {
		n.forbidden = true
		n.checkSynced()
	}
}

// Transformer trims objects while a list is received. Each object counts as a response, because a long
// list takes time.
func (n *namespace[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		n.recordResponse()
		return n.trim(object)
	}
}

// Add caches a new object.
func (n *namespace[T]) Add(object any) error { return n.take(object, Added, 1) }

// Update caches a changed object.
func (n *namespace[T]) Update(object any) error { return n.take(object, Modified, 0) }

// Delete removes an object that is gone or no longer matches the selector.
func (n *namespace[T]) Delete(object any) error { return n.take(object, Deleted, -1) }

// take handles an event that changes the number of watched objects by more.
func (n *namespace[T]) take(object any, e EventKind, more int) error {
	o, err := n.trim(object)
	if err != nil {
		return err
	}
	if e == Deleted {
		o.cached = *new(T)
	}
	n.recordEvent(e)
	n.mu.Lock()
	n.watched = max(0, n.watched+more)
	changed := n.put(o)
	n.recordVersion(o.version)
	n.mu.Unlock()
	if changed {
		n.notify(o.name, true)
	}
	return nil
}

// Replace replaces all objects by a list.
func (n *namespace[T]) Replace(list []any, version string) error {
	listed := map[types.NamespacedName]T{}
	for _, object := range list {
		o, err := n.trim(object)
		if err != nil {
			return err
		}
		if !o.isEmpty() {
			o.cached.meta().Listed = true
			listed[o.name] = o.cached
		}
	}
	n.recordEvent(List)
	n.recordListing(false)
	n.mu.Lock()
	n.watched, n.listed = len(list), true
	changed := n.replace(listed)
	n.latest.Store(kube.ParseVersion(version)) // which may be lower
	n.checkSynced()
	n.mu.Unlock()
	for _, name := range changed {
		n.notify(name, false)
	}
	return nil
}

// replace caches a list, and returns the names of changed objects. A list wins even with lower versions,
// as after a restore. An object of kind Namespace belongs to itself. The caller holds the lock.
func (n *namespace[T]) replace(listed map[types.NamespacedName]T) []types.NamespacedName {
	var changed []types.NamespacedName
	for name := range n.objects {
		if _, still := listed[name]; !still && (n.name == "" || n.name == cmp.Or(name.Namespace, name.Name)) {
			n.drop(name)
			changed = append(changed, name)
		}
	}
	for name, o := range listed {
		old, found := n.objects[name]
		if !found || old.meta().UID != o.meta().UID || old.meta().Version != o.meta().Version || o.meta().Version == 0 {
			n.objects[name] = o
			changed = append(changed, name)
		}
	}
	return changed
}

// Bookmark records the version of a bookmark.
func (n *namespace[T]) Bookmark(version string) error {
	n.recordEvent(Bookmark)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recordVersion(kube.ParseVersion(version))
	return nil
}

// Resync does nothing: there is no resync period.
func (n *namespace[T]) Resync() error { return nil }

// recordEvent records a response of the watch.
func (n *namespace[T]) recordEvent(e EventKind) {
	n.recordResponse()
	if n.count != nil {
		n.count(e)
	}
}
