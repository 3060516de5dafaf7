// Package quota bounds the keys of a namespace, and how often they are refreshed.
package quota

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

// settleEvery is how soon a namespace that exceeds a limit is bounded.
const settleEvery = 5 * time.Second

// Limits of one namespace; 0: none.
type Limits struct {
	// Keys that are asked for. The oldest ConfigMaps come first.
	Keys int
	// Refreshes that are asked for within a second. If there are more, all intervals of the
	// namespace are multiplied by the same power of two.
	Refreshes int
}

// Objects are the annotated ConfigMaps as they are written.
type Objects interface {
	Get(name types.NamespacedName) *annotated.Object
	Names() []types.NamespacedName
	Listed(namespace string) bool
	// Each calls visit for every object. It holds a lock.
	Each(visit func(*annotated.Object))
}

// Quota shows the annotated ConfigMaps within the limits. It is safe for concurrent use.
type Quota struct {
	Objects

	limits     Limits
	mu         sync.RWMutex
	namespaces map[string]*namespace
}

// namespace is what the ConfigMaps of a namespace ask for.
type namespace struct {
	keys, refreshed int
	// rate is that of the refreshes, in microhertz.
	rate int64
	// changed reports that this is no longer what it was when the rest was settled.
	changed bool
	settled
}

// settled is how a namespace is bounded.
type settled struct {
	// full reports that the keys of objects behind last are not asked for.
	full bool
	last age
	// stretch is what intervals are multiplied by; 0: 1.
	stretch int
	// speaker is the object that says so, of so many keys.
	speaker types.UID
	said    int
}

// age orders objects by their creation.
type age struct {
	created int64
	uid     types.UID
}

func ageOf(o *annotated.Object) age { return age{o.Created, o.UID} }

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.uid, b.uid))
}

// New returns a quota whose Objects have to be set, which call Replaced.
func New(l Limits) *Quota { return &Quota{limits: l, namespaces: map[string]*namespace{}} }

// Replaced counts what an object asks for in place of what it asked for before; nil: nothing.
func (q *Quota) Replaced(old, current *annotated.Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(old, -1)
	q.add(current, 1)
}

func (q *Quota) add(o *annotated.Object, sign int) {
	if o == nil || len(o.Request.Pairs) == 0 || o.Request.Suspended {
		return
	}
	n := q.namespaces[o.Namespace]
	if n == nil {
		n = &namespace{}
		q.namespaces[o.Namespace] = n
	}
	n.changed = true
	n.keys += sign * len(o.Request.Pairs)
	for _, pair := range o.Request.Pairs {
		if interval := o.Request.Interval(pair.Key); interval > 0 {
			n.refreshed += sign
			n.rate += int64(sign) * (int64(time.Second) * 1e6 / int64(interval))
		}
	}
	if n.keys == 0 && !n.full && n.stretch == 0 {
		delete(q.namespaces, o.Namespace)
	}
}

// Get returns an object within the limits: one without keys, as if its annotation could not be
// read, if older ones have all keys of the namespace, and else with a stretched interval.
func (q *Quota) Get(name types.NamespacedName) *annotated.Object {
	o := q.Objects.Get(name)
	if o == nil || len(o.Request.Pairs) == 0 || o.Request.Suspended {
		return o
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	n := q.namespaces[name.Namespace]
	if n == nil || !n.full && n.stretch == 0 {
		return o
	}
	bound := annotation.Bound{}
	switch {
	case n.full && ageOf(o).compare(n.last) > 0:
		bound.Keys = q.limits.Keys
	case n.stretch > 0 && o.Request.Refreshes():
		bound.Stretch = n.stretch
		if n.speaker == o.UID {
			bound.Refreshes, bound.Refreshed = q.limits.Refreshes, n.said
		}
	default:
		return o
	}
	bounded := *o
	bounded.Bound = &bound
	bounded.Request, bounded.Invalid = bound.Apply(name.Namespace, o.Request, o.Invalid)
	return &bounded
}

// Run bounds namespaces until ctx is done. It calls notify for each object that
// is bounded in another way than before.
func (q *Quota) Run(ctx context.Context, c clock.WithTicker, notify func(types.NamespacedName)) {
	ticker := c.NewTicker(settleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			for _, name := range q.Settle() {
				notify(name)
			}
		}
	}
}

// member is what an object asks for of a namespace that has to be settled.
type member struct {
	age
	name      types.NamespacedName
	keys      int
	refreshes bool
}

// Settle bounds the namespaces that exceed a limit, and frees those that no longer do. It returns
// the objects that this concerns.
func (q *Quota) Settle() []types.NamespacedName {
	members := map[string][]member{}
	q.mu.Lock()
	for name, n := range q.namespaces {
		if n.changed && (n.full || q.limits.Keys > 0 && n.keys > q.limits.Keys || n.stretch != q.stretch(n)) {
			members[name] = nil
		}
		n.changed = false
	}
	q.mu.Unlock()
	if len(members) == 0 {
		return nil
	}
	q.Each(func(o *annotated.Object) {
		if of, concerned := members[o.Namespace]; concerned && len(o.Request.Pairs) > 0 && !o.Request.Suspended {
			members[o.Namespace] = append(of, member{ageOf(o), o.NamespacedName, len(o.Request.Pairs), o.Request.Refreshes()})
		}
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	var concerned []types.NamespacedName
	for name, of := range members {
		if n := q.namespaces[name]; n != nil {
			concerned = append(concerned, q.bound(n, of)...)
		}
	}
	return concerned
}

// bound bounds one namespace.
func (q *Quota) bound(n *namespace, of []member) (concerned []types.NamespacedName) {
	slices.SortFunc(of, func(a, b member) int { return a.compare(b.age) })
	before := n.settled
	n.full, n.last = false, age{}
	left := q.limits.Keys
	for _, m := range of {
		if left -= m.keys; q.limits.Keys > 0 && left < 0 {
			n.full = true
			break
		}
		n.last = m.age
	}
	if n.stretch = q.stretch(n); n.stretch != before.stretch {
		n.said = n.refreshed
		if i := slices.IndexFunc(of, func(m member) bool { return m.refreshes }); i >= 0 {
			n.speaker = of[i].uid
		}
	}
	for _, m := range of {
		was, is := before.full && m.compare(before.last) > 0, n.full && m.compare(n.last) > 0
		if was != is || n.stretch != before.stretch && m.refreshes {
			concerned = append(concerned, m.name)
		}
	}
	return concerned
}

// stretch returns what the intervals of a namespace are multiplied by; 0: 1. It
// shrinks late, since with each change all wants of the namespace are published.
func (q *Quota) stretch(n *namespace) int {
	if q.limits.Refreshes == 0 {
		return 0
	}
	rate, budget := n.rate, int64(q.limits.Refreshes)*1e6
	if q.limits.Keys > 0 && n.keys > q.limits.Keys { // the rest is not asked for
		rate = rate / int64(n.keys) * int64(q.limits.Keys)
	}
	factor := max(1, n.stretch)
	for rate > budget*int64(factor) {
		factor *= 2
	}
	for factor > 1 && rate < budget*int64(factor)/2*8/10 {
		factor /= 2
	}
	if factor == 1 {
		return 0
	}
	return factor
}
