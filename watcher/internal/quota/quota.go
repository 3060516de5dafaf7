// Package quota limits the keys of a namespace and their refreshes.
package quota

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// checkInterval is the interval between checks of the limits.
const checkInterval = 5 * time.Second

// Limits are the limits of one namespace (0: none).
type Limits struct {
	// Keys is the maximum number of requested keys, the oldest ConfigMaps first.
	Keys int
	// Refreshes is the maximum number of refreshes per second. If more are requested, all intervals
	// of the namespace are multiplied by the same power of two.
	Refreshes int
}

// Quota returns annotated ConfigMaps within the limits for the keys of a namespace and their refreshes. It is safe for
// concurrent use.
type Quota struct {
	limits  Limits
	objects *informer.Informer[*annotated.Object]
	changed atomic.Bool
	mu      sync.RWMutex
	// decisions has the namespaces that exceed a limit.
	decisions map[string]decision
}

// decision is the decision about a namespace.
type decision struct {
	// full means that objects created after cutoff get no keys.
	full   bool
	cutoff age
	// stretch multiplies the intervals (0 means 1).
	stretch int
	// reporter is the object that reports the stretch of a number of keys.
	reporter types.UID
	reported int
}

// excludes reports whether an object gets no keys.
func (d decision) excludes(o *annotated.Object) bool { return d.full && ageOf(o).compare(d.cutoff) > 0 }

type age struct {
	created int64
	uid     types.UID
}

func ageOf(o *annotated.Object) age { return age{o.Created, o.UID} }

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.uid, b.uid))
}

// New returns a quota of objects.
func New(l Limits, objects *informer.Informer[*annotated.Object]) *Quota {
	return &Quota{limits: l, objects: objects, decisions: map[string]decision{}}
}

// Changed records that an object has changed.
func (q *Quota) Changed() { q.changed.Store(true) }

// GetCompiled returns a compiled object within the limits: with stretched intervals, or without keys if older objects
// use them up, as if its annotation were invalid. Only a worker may call it: see annotated.Object.Compile.
func (q *Quota) GetCompiled(name types.NamespacedName) *annotated.Object {
	return q.get(name, (*annotated.Object).Compile)
}

// Get is GetCompiled, but does not compile expressions.
func (q *Quota) Get(name types.NamespacedName) *annotated.Object {
	return q.get(name, (*annotated.Object).Compiled)
}

func (q *Quota) get(name types.NamespacedName, compiled func(*annotated.Object) *annotated.Object) *annotated.Object {
	o := q.objects.Get(name)
	if o != nil {
		o = compiled(o)
	}
	if o == nil || !requests(o) {
		return o
	}
	q.mu.RLock()
	d, exceeds := q.decisions[name.Namespace]
	q.mu.RUnlock()
	if !exceeds {
		return o
	}
	bound := &v1.Bound{}
	switch {
	case d.excludes(o):
		bound.Keys = uint32(q.limits.Keys)
	case d.stretch > 0 && o.Request.Refreshes():
		bound.Stretch = uint32(d.stretch)
		if d.reporter == o.UID {
			bound.Refreshes, bound.Refreshed = uint32(q.limits.Refreshes), uint32(d.reported)
		}
	default:
		return o
	}
	bounded := *o
	bounded.Bound = bound
	bounded.Request, bounded.Invalid = annotation.Bounded(bound, o.Namespace, o.Request, o.Invalid)
	return &bounded
}

func requests(o *annotated.Object) bool { return len(o.Request.Pairs) > 0 && !o.Request.Suspended }

// Run checks the limits after changes until ctx is done, and passes on the affected objects.
func (q *Quota) Run(ctx context.Context, affected func(types.NamespacedName)) {
	wait.UntilWithContext(ctx, func(context.Context) {
		if q.changed.Swap(false) {
			for _, name := range q.Decide() {
				affected(name)
			}
		}
	}, checkInterval)
}

// demand is the sum of the requests in a namespace.
type demand struct {
	keys, refreshed int
	// rate is the rate of all refreshes, in microhertz.
	rate int64
}

// Decide decides about the namespaces that exceed a limit or did so before, and returns the affected
// objects.
func (q *Quota) Decide() (affected []types.NamespacedName) {
	demands := map[string]demand{}
	q.visit(func(o *annotated.Object) {
		d := demands[o.Namespace]
		d.keys += len(o.Request.Pairs)
		for _, pair := range o.Request.Pairs {
			if interval := o.Request.Interval(pair.Key); interval > 0 {
				d.refreshed++
				d.rate += int64(time.Second) * 1e6 / int64(interval)
			}
		}
		demands[o.Namespace] = d
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.decisions, func(name string, _ decision) bool { return demands[name].keys == 0 })
	members := map[string][]*annotated.Object{}
	for name, d := range demands {
		if _, exceeds := q.decisions[name]; exceeds || q.tooMany(d) || q.stretch(d, 1) > 0 {
			members[name] = nil
		}
	}
	if len(members) == 0 {
		return nil
	}
	q.visit(func(o *annotated.Object) {
		if objects, concerned := members[o.Namespace]; concerned {
			members[o.Namespace] = append(objects, o)
		}
	})
	for name, objects := range members {
		affected = append(affected, q.decide(name, demands[name], objects)...)
	}
	return affected
}

// visit visits all objects that request keys.
func (q *Quota) visit(do func(*annotated.Object)) {
	q.objects.Each(func(o *annotated.Object) {
		if requests(o) {
			do(o)
		}
	})
}

func (q *Quota) tooMany(d demand) bool { return q.limits.Keys > 0 && d.keys > q.limits.Keys }

// decide applies the limits to one namespace. The caller holds the lock.
func (q *Quota) decide(name string, d demand, objects []*annotated.Object) (affected []types.NamespacedName) {
	slices.SortFunc(objects, func(a, b *annotated.Object) int { return ageOf(a).compare(ageOf(b)) })
	before := q.decisions[name]
	now := before
	now.full, now.cutoff, now.stretch = q.tooMany(d), age{}, q.stretch(d, before.stretch)
	for left, i := q.limits.Keys, 0; now.full && i < len(objects) && left >= len(objects[i].Request.Pairs); i++ {
		left, now.cutoff = left-len(objects[i].Request.Pairs), ageOf(objects[i])
	}
	reports := func(o *annotated.Object) bool { return o.Request.Refreshes() && o.UID == before.reporter }
	if now.stretch != before.stretch || now.stretch > 0 && !slices.ContainsFunc(objects, reports) {
		now.reported = d.refreshed
		if i := slices.IndexFunc(objects, func(o *annotated.Object) bool { return o.Request.Refreshes() }); i >= 0 {
			now.reporter = objects[i].UID
		}
	}
	q.decisions[name] = now
	if !now.full && now.stretch == 0 {
		delete(q.decisions, name)
	}
	for _, o := range objects {
		changed := now.stretch != before.stretch || now.reporter != before.reporter && o.UID == now.reporter
		if before.excludes(o) != now.excludes(o) || changed && o.Request.Refreshes() {
			affected = append(affected, o.NamespacedName)
		}
	}
	return affected
}

// stretch returns the factor for intervals; 0 means 1. It decreases only below four fifths of
// the next limit, because each change publishes all wants of the namespace.
func (q *Quota) stretch(d demand, before int) int {
	if q.limits.Refreshes == 0 {
		return 0
	}
	rate, budget := d.rate, int64(q.limits.Refreshes)*1e6
	if q.tooMany(d) { // the other keys are not fetched
		rate = rate / int64(d.keys) * int64(q.limits.Keys)
	}
	factor := max(1, before)
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
