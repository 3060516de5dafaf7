package reconcile

import (
	"maps"
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
	// peace is how long a key must be left alone for its repairs to be
	// forgotten.
	peace = 2 * maxRepairPause
)

// fight counts the repairs of one key in a row.
type fight struct {
	last    time.Time
	repairs int
	told    bool
}

// damped tells whether further repairs have to wait.
func (f *fight) damped(now time.Time) bool {
	return f != nil && f.repairs >= freeRepairs && now.Sub(f.last) <= peace
}

// pause returns how long the next repair has to wait.
func (f *fight) pause(now time.Time) time.Duration {
	pause := min(repairPause<<min(f.repairs-freeRepairs, 10), maxRepairPause)
	return pause - now.Sub(f.last)
}

// damp takes repairs out of the plan that come too soon after the last ones of
// the same key: another controller writes it, and it would go on for ever at
// full speed. Its owner is told that once, in place of each drift. It returns
// when to look again.
func (r *Reconciler) damp(name types.NamespacedName, p *plan.Plan) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	p.Notices = slices.DeleteFunc(p.Notices, func(n plan.Notice) bool {
		f := r.fights[pipeline.Key{Namespace: name.Namespace, Name: name.Name, Key: n.Key}]
		return n.Reason == pipeline.ReasonDrifted && f.damped(now)
	})
	p.Publish = slices.DeleteFunc(p.Publish, func(w plan.Want) bool {
		f := r.fights[pipeline.KeyOf(w.Want)]
		if !isRepair(w) || !f.damped(now) {
			return false
		}
		if !f.told {
			f.told = true
			p.Notices = append(p.Notices, contested(w.Key))
		}
		wait := f.pause(now)
		again = soonest(again, max(wait, 0))
		return wait > 0
	})
	return again
}

func contested(key string) plan.Notice {
	return plan.Notice{
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
	now := r.Clock.Now()
	f := r.fights[key]
	if f == nil || now.Sub(f.last) > peace {
		if len(r.fights) > maxMemory {
			maps.DeleteFunc(r.fights, func(_ pipeline.Key, f *fight) bool { return now.Sub(f.last) > peace })
		}
		f = &fight{}
		r.fights[key] = f
	}
	f.repairs++
	f.last = now
}

// isRepair tells whether a want repairs a key that changed hands.
func isRepair(w plan.Want) bool { return w.Cause == v1.Cause_CAUSE_HEALED }
