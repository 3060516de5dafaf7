// Package quota limits the keys of a namespace and their refreshes.
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

// settleEvery is the interval between checks of the limits.
const settleEvery = 5 * time.Second

// Limits of one namespace; 0 means none.
type Limits struct {
	// Keys is the maximum number of requested keys, the oldest ConfigMaps first.
	Keys int
	// Refreshes is the maximum number of refreshes per second. If more are requested, all intervals
	// of the namespace are multiplied by the same power of two.
	Refreshes int
}

// Objects are the annotated ConfigMaps without limits.
type Objects interface {
	Get(name types.NamespacedName) *annotated.Object
	Names() []types.NamespacedName
	Listed(namespace string) bool
	// Each holds a lock while it calls visit.
	Each(visit func(*annotated.Object))
}

// Quota returns annotated ConfigMaps within the limits. It is safe for concurrent use.
type Quota struct {
	Objects

	limits     Limits
	mu         sync.RWMutex
	namespaces map[string]*namespace
}

// namespace sums up the requests of its ConfigMaps.
type namespace struct {
	keys, refreshed int
	// rate of all refreshes, in microhertz.
	rate int64
	// changed since Settle last decided.
	changed bool
	settled
}

// settled is the decision about a namespace.
type settled struct {
	// full means that objects younger than last get no keys.
	full bool
	last age
	// stretch multiplies the intervals; 0 means 1.
	stretch int
	// speaker is the object that reports the stretch, for said keys.
	speaker types.UID
	said    int
}

type age struct {
	created int64
	uid     types.UID
}

func ageOf(o *annotated.Object) age { return age{o.Created, o.UID} }

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.uid, b.uid))
}

// New returns a quota. The caller sets Objects, which must call Replaced.
func New(l Limits) *Quota { return &Quota{limits: l, namespaces: map[string]*namespace{}} }

// Replaced counts the requests of an object instead of its earlier ones; nil means none.
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

// Get returns an object within the limits: with a stretched interval or, if older objects use up
// the keys, without keys, as if its annotation were invalid.
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

// Run checks the limits until ctx is done, and calls notify for each object whose limits changed.
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

// member is an object of a namespace in Settle.
type member struct {
	age
	name      types.NamespacedName
	keys      int
	refreshes bool
}

// Settle decides about namespaces that exceed a limit or no longer do, and returns the affected
// objects.
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

// stretch returns the factor for intervals; 0 means 1. It decreases late, because each change
// publishes all wants of the namespace.
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
