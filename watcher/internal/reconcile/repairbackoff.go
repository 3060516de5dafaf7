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
func (p *pacing) limitRepairs(
	name types.NamespacedName, seen time.Time, of *plan.Plan,
) (again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	of.Notices = slices.DeleteFunc(of.Notices, func(n plan.Notice) bool {
		f := p.repairs.entries[wantindex.KeyOf(name, n.Key)]
		return n.Reason == pipeline.ReasonDrifted && f.Limited(now)
	})
	of.Publish = slices.DeleteFunc(of.Publish, func(w plan.Want) bool {
		f := p.repairs.entries[pipeline.KeyOf(w.Want)]
		if age := now.Sub(seen); annotation.Settled(w.GetDrift()) && age >= 0 && age < settling {
			again = pace.Soonest(again, settling-age)
			return true
		}
		if !isRepair(w) || !f.Limited(now) {
			return false
		}
		if !f.Reported && !strings.HasPrefix(w.GetDrift(), annotation.AncientManager) {
			f.Reported = true
			of.Notices = append(of.Notices, contested(w.Key, annotation.Ownership{Fingerprint: w.GetDrift()}.Manager()))
		}
		wait := f.Wait(now)
		again = pace.Soonest(again, wait)
		return wait > 0
	})
	return again
}

func contested(key, manager string) plan.Notice {
	return plan.Notice{
		Reason:     pipeline.ReasonContested,
		Key:        key,
		Note:       condition.Contested(key, manager) + "; it is repaired at growing intervals",
		Occurrence: key,
	}
}

// repaired counts a repair.
func (p *pacing) repaired(key pipeline.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	f := p.repairs.entries[key]
	if f == nil {
		f = &pace.Repairs{}
		p.repairs.put(key, f)
	}
	f.Count(now)
}

// isRepair reports whether a want repairs a drifted key, other than by a second look.
func isRepair(w plan.Want) bool {
	return w.Cause == v1.Cause_CAUSE_DRIFT && !annotation.Settled(w.GetDrift())
}
