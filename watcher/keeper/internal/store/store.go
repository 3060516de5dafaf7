// Package store keeps what keeper needs of the objects of one kind, filled by one
// watch for each namespace.
package store

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// Config of a Store.
type Config[T any] struct {
	// Scopes are the namespaces that are watched, or one "" for all.
	Scopes []string
	// Read returns what is kept of an object, and whether anything is.
	Read func(object any) (T, bool)
	// Notify is called after each change; live: one that the watch delivered.
	Notify func(name types.NamespacedName, live bool)
	// Now is the clock.
	Now func() time.Time
}

// Item is what is kept of one object.
type Item[T any] struct {
	types.NamespacedName
	UID types.UID
	// Version of the object, by which two can be compared.
	Version uint64
	// Value is what Read has returned.
	Value T
}

// Store is safe for concurrent use.
type Store[T any] struct {
	config Config[T]
	pulses map[string]*informer.Pulse

	mu      sync.RWMutex
	items   map[types.NamespacedName]*Item[T]
	waiting map[string]struct{}
	synced  chan struct{}
}

// New returns an empty store.
func New[T any](c Config[T]) *Store[T] {
	s := &Store[T]{
		config: c, pulses: map[string]*informer.Pulse{}, items: map[types.NamespacedName]*Item[T]{},
		waiting: map[string]struct{}{}, synced: make(chan struct{}),
	}
	for _, scope := range c.Scopes {
		s.pulses[scope] = informer.NewPulse(c.Now)
		s.waiting[scope] = struct{}{}
	}
	return s
}

// Watch fills the store from one namespace until ctx is done.
func (s *Store[T]) Watch(ctx context.Context, from informer.Source, scope string) {
	from.Watch(ctx, informer.Watched{
		Namespace: scope, Store: filler[T]{s, scope}, Pulse: s.pulses[scope], Refused: func() {},
	})
}

// Synced is closed when every namespace has been listed once.
func (s *Store[T]) Synced() <-chan struct{} { return s.synced }

// Get returns an item; nil: there is none.
func (s *Store[T]) Get(name types.NamespacedName) *Item[T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[name]
}

// Each calls visit for every item. It holds a lock, so visit must be quick.
func (s *Store[T]) Each(visit func(*Item[T])) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, item := range s.items {
		visit(item)
	}
}

// Len returns the number of items.
func (s *Store[T]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.items)
}

// Silence returns how long ago the watches have given a sign of life: the longest.
func (s *Store[T]) Silence() time.Duration {
	longest := time.Duration(0)
	for _, pulse := range s.pulses {
		longest = max(longest, pulse.Silence())
	}
	return longest
}

// Put takes the answer to a write of one's own, so that the next look does not
// find what was before it. The watch delivers it, too; what it has gone past is
// not taken, since the object may be gone.
func (s *Store[T]) Put(object any) {
	item, err := s.read(object)
	if err != nil || item == nil {
		return
	}
	pulse, found := s.pulses[item.Namespace]
	if !found {
		pulse = s.pulses[""]
	}
	s.mu.Lock()
	changed := pulse.Version() < item.Version && s.put(item)
	s.mu.Unlock()
	if changed { // the answer may hold an edit that was not delivered yet
		s.config.Notify(item.NamespacedName, true)
	}
}

// read returns the item for an object; nil: nothing is kept of it.
func (s *Store[T]) read(object any) (*Item[T], error) {
	if kept, ok := object.(trimmed[T]); ok {
		return kept.item, nil
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	value, kept := s.config.Read(object)
	if !kept {
		return nil, nil //nolint:nilnil // nothing is kept
	}
	return &Item[T]{
		NamespacedName: types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()},
		UID:            accessor.GetUID(), Version: informer.Number(accessor.GetResourceVersion()), Value: value,
	}, nil
}

// put stores an item unless a newer version of it is there, and reports whether
// that was a change. The caller holds the lock.
func (s *Store[T]) put(item *Item[T]) bool {
	old := s.items[item.NamespacedName]
	if old != nil && old.UID == item.UID && old.Version >= item.Version {
		return false
	}
	s.items[item.NamespacedName] = item
	return true
}

// trimmed is an object of which the rest is dropped before a list piles up.
type trimmed[T any] struct {
	metav1.Object // empty, shared by all

	namespace, name string
	item            *Item[T]
}

// GetNamespace is half of what a list is kept under.
func (t trimmed[T]) GetNamespace() string { return t.namespace }

// GetName is the other half.
func (t trimmed[T]) GetName() string { return t.name }

// filler is the part of a store that one watch fills.
type filler[T any] struct {
	*Store[T]
	scope string
}

var _ informer.Store = filler[struct{}]{}

// Transformer drops what is not kept.
func (f filler[T]) Transformer() cache.TransformFunc {
	nothing := &metav1.ObjectMeta{}
	return func(object any) (any, error) {
		f.pulses[f.scope].Beat()
		if _, done := object.(trimmed[T]); done {
			return object, nil
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return object, nil //nolint:nilerr // what is no object is not trimmed
		}
		item, err := f.read(object)
		return trimmed[T]{nothing, accessor.GetNamespace(), accessor.GetName(), item}, err
	}
}

// Add takes an object that is new to the watch.
func (f filler[T]) Add(object any) error { return f.take(object) }

// Update takes an object that the watch knows.
func (f filler[T]) Update(object any) error { return f.take(object) }

func (f filler[T]) take(object any) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("take an object: %w", err)
	}
	item, err := f.read(object)
	if err != nil {
		return err
	}
	f.pulses[f.scope].Beat()
	f.mu.Lock()
	var changed bool
	if item == nil {
		changed = f.drop(types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()})
	} else {
		changed = f.put(item)
	}
	f.pulses[f.scope].Note(accessor.GetResourceVersion())
	f.mu.Unlock()
	if changed {
		f.config.Notify(types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()}, true)
	}
	return nil
}

// drop forgets an item, and reports whether there was one. The caller holds the
// lock.
func (f filler[T]) drop(name types.NamespacedName) bool {
	_, found := f.items[name]
	delete(f.items, name)
	return found
}

// Delete takes an object that is gone, or that the selector no longer matches.
func (f filler[T]) Delete(object any) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("forget an object: %w", err)
	}
	name := types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()}
	f.pulses[f.scope].Beat()
	f.mu.Lock()
	gone := f.drop(name)
	f.pulses[f.scope].Note(accessor.GetResourceVersion())
	f.mu.Unlock()
	if gone {
		f.config.Notify(name, true)
	}
	return nil
}

// Replace takes a whole list; what is missing from it is gone.
func (f filler[T]) Replace(list []any, version string) error {
	listed := make(map[types.NamespacedName]*Item[T], len(list))
	for _, object := range list {
		item, err := f.read(object)
		if err != nil {
			return err
		}
		if item != nil {
			listed[item.NamespacedName] = item
		}
	}
	f.pulses[f.scope].Beat()
	f.mu.Lock()
	changed := f.replace(listed)
	f.pulses[f.scope].Reset(version)
	if _, waits := f.waiting[f.scope]; waits {
		delete(f.waiting, f.scope)
		if len(f.waiting) == 0 {
			close(f.synced)
		}
	}
	f.mu.Unlock()
	for _, name := range changed {
		f.config.Notify(name, false)
	}
	return nil
}

// replace returns the names of what has changed. A list is the truth, also when
// its versions are lower than before, as after a restore. A namespace is in its own
// scope. The caller holds the lock.
func (f filler[T]) replace(listed map[types.NamespacedName]*Item[T]) []types.NamespacedName {
	var changed []types.NamespacedName
	for name := range f.items {
		if _, still := listed[name]; !still && (f.scope == "" || f.scope == cmp.Or(name.Namespace, name.Name)) {
			delete(f.items, name)
			changed = append(changed, name)
		}
	}
	for name, item := range listed {
		if old := f.items[name]; old == nil || old.UID != item.UID || old.Version != item.Version {
			f.items[name] = item
			changed = append(changed, name)
		}
	}
	return changed
}

// Bookmark is a sign of life.
func (f filler[T]) Bookmark(version string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pulses[f.scope].Note(version)
	f.pulses[f.scope].Beat()
	return nil
}

// Resync does nothing: there is no resync period.
func (f filler[T]) Resync() error { return nil }
