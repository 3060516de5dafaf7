package reconcile

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

const (
	// freeRepairs is how many repairs of a key in a row are made at once.
	freeRepairs = 3
	// The pause between further ones grows from repairPause to maxRepairPause.
	repairPause    = 10 * time.Second
	maxRepairPause = 10 * time.Minute
	// repairsForgotten is how long a key must be left alone for its repairs to be
	// dropped.
	repairsForgotten = 2 * maxRepairPause
)

// repairBackoff counts the repairs of one key in a row.
type repairBackoff struct {
	last    time.Time
	repairs int
	emitted bool
}

// limited reports whether further repairs have to wait.
func (f *repairBackoff) limited(now time.Time) bool {
	return f != nil && f.repairs >= freeRepairs && now.Sub(f.last) <= repairsForgotten
}

// pause returns how long the next repair has to wait.
func (f *repairBackoff) pause(now time.Time) time.Duration {
	pause := min(repairPause<<min(f.repairs-freeRepairs, 10), maxRepairPause)
	return pause - now.Sub(f.last)
}

// limitRepairs takes repairs out of the plan that come too soon after the last ones of
// the same key: another controller writes it, and it would go on for ever at
// full speed. One Event reports that, in place of each drift. It returns
// when to look again.
func (r *Reconciler) limitRepairs(name types.NamespacedName, p *plan.Plan) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	p.Conditions = slices.DeleteFunc(p.Conditions, func(n plan.Condition) bool {
		f := r.repairs.of[pipeline.Key{Namespace: name.Namespace, Name: name.Name, Key: n.Key}]
		return n.Reason == pipeline.ReasonDrifted && f.limited(now)
	})
	p.Publish = slices.DeleteFunc(p.Publish, func(w plan.Want) bool {
		f := r.repairs.of[pipeline.KeyOf(w.Want)]
		if !isRepair(w) || !f.limited(now) {
			return false
		}
		if !f.emitted {
			f.emitted = true
			p.Conditions = append(p.Conditions, contested(w.Key))
		}
		wait := f.pause(now)
		again = soonest(again, max(wait, 0))
		return wait > 0
	})
	return again
}

func contested(key string) plan.Condition {
	return plan.Condition{
		Reason:     pipeline.ReasonContested,
		Key:        key,
		Note:       "key " + key + " keeps being changed by somebody else; it is repaired at growing intervals",
		Occurrence: key,
	}
}

// repaired counts a repair.
func (r *Reconciler) repaired(key pipeline.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	f := r.repairs.of[key]
	if f == nil || now.Sub(f.last) > repairsForgotten {
		f = &repairBackoff{}
		r.repairs.put(key, f)
	}
	f.repairs++
	f.last = now
}

// isRepair reports whether a want repairs a key that changed hands.
func isRepair(w plan.Want) bool { return w.Cause == v1.Cause_CAUSE_HEALED }
