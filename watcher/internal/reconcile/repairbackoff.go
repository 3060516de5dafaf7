package reconcile

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/pace"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// settling is the resolution of the times in managedFields.
const settling = time.Second

// limitRepairs removes repairs from the plan that follow the last ones of the same key too soon, so
// that a conflict with another controller causes no hot loop. One Event replaces the Event of each drift.
// A check that settles a fingerprint waits until its second is over: the object was seen at that time. It
// returns the time until the next repair.
func (r *Reconciler) limitRepairs(
	name types.NamespacedName, seen time.Time, p *plan.Plan,
) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	p.Conditions = slices.DeleteFunc(p.Conditions, func(n plan.Condition) bool {
		f := r.repairs.entries[wantindex.KeyOf(name, n.Key)]
		return n.Reason == pipeline.ReasonDrifted && f.Limited(now)
	})
	p.Publish = slices.DeleteFunc(p.Publish, func(w plan.Want) bool {
		f := r.repairs.entries[pipeline.KeyOf(w.Want)]
		if age := now.Sub(seen); annotation.Settled(w.GetDrift()) && age >= 0 && age < settling {
			again = pace.Soonest(again, settling-age)
			return true
		}
		if !isRepair(w) || !f.Limited(now) {
			return false
		}
		if !f.Reported && !strings.HasPrefix(w.GetDrift(), annotation.AncientManager) {
			f.Reported = true
			p.Conditions = append(p.Conditions, contested(w.Key, annotation.Ownership{Fingerprint: w.GetDrift()}.Manager()))
		}
		wait := f.Wait(now)
		again = pace.Soonest(again, wait)
		return wait > 0
	})
	return again
}

func contested(key, manager string) plan.Condition {
	return plan.Condition{
		Reason:     pipeline.ReasonContested,
		Key:        key,
		Note:       condition.Contested(key, manager) + "; it is repaired at growing intervals",
		Occurrence: key,
	}
}

// repaired counts a repair.
func (r *Reconciler) repaired(key pipeline.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	f := r.repairs.entries[key]
	if f == nil {
		f = &pace.Repairs{}
		r.repairs.put(key, f)
	}
	f.Count(now)
}

// isRepair reports whether a want repairs a drifted key, other than by a second look.
func isRepair(w plan.Want) bool {
	return w.Cause == v1.Cause_CAUSE_DRIFT && !annotation.Settled(w.GetDrift())
}
