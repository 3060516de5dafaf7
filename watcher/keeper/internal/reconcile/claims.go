package reconcile

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Claims are the Watchers by the ConfigMap that they name. It is safe for
// concurrent use.
type Claims struct {
	mu sync.Mutex
	// of each Watcher the ConfigMap, and the other way round.
	of map[types.NamespacedName]types.NamespacedName
	by map[types.NamespacedName]map[types.NamespacedName]struct{}
}

// NewClaims returns none.
func NewClaims() *Claims {
	return &Claims{
		of: map[types.NamespacedName]types.NamespacedName{},
		by: map[types.NamespacedName]map[types.NamespacedName]struct{}{},
	}
}

// Set notes the ConfigMap of a Watcher.
func (c *Claims) Set(watcher, target types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(watcher)
	c.of[watcher] = target
	if c.by[target] == nil {
		c.by[target] = map[types.NamespacedName]struct{}{}
	}
	c.by[target][watcher] = struct{}{}
}

// Drop forgets a Watcher, and returns which ConfigMap it named.
func (c *Claims) Drop(watcher types.NamespacedName) types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drop(watcher)
}

func (c *Claims) drop(watcher types.NamespacedName) types.NamespacedName {
	target := c.of[watcher]
	delete(c.of, watcher)
	delete(c.by[target], watcher)
	if len(c.by[target]) == 0 {
		delete(c.by, target)
	}
	return target
}

// Of returns the Watchers that name a ConfigMap, sorted.
func (c *Claims) Of(target types.NamespacedName) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Keys(c.by[target]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
}
