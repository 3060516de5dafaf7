package reconcile

import (
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/known"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
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
	began, last time.Time
	repairs     int
}

// damp takes repairs out of the plan that come too soon after the last ones of
// the same key: another controller writes it, and it would go on for ever at
// full speed. It returns when to look again.
func (r *Reconciler) damp(o *observe.Object, p *plan.Plan) (again time.Duration) {
	if o == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := p.Publish[:0]
	for _, w := range p.Publish {
		key := pipeline.KeyOf(w.Want)
		if !isRepair(w) {
			left = append(left, w)
			continue
		}
		wait, since := r.repair(key)
		if wait > 0 {
			p.Notices = append(p.Notices, plan.Notice{
				Reason:     pipeline.ReasonContested,
				Key:        w.Key,
				Note:       "key " + w.Key + " keeps being changed by somebody else; it is repaired at growing intervals",
				Occurrence: w.Key + "\x00" + since.Format(time.RFC3339Nano),
			})
			again = max(again, wait)
			dropNotice(p, w.Key)
			continue
		}
		left = append(left, w)
	}
	p.Publish = left
	return again
}

// repair counts a repair and returns how long it has to wait, and since when
// the key is being fought for.
func (r *Reconciler) repair(key pipeline.Key) (wait time.Duration, since time.Time) {
	now := r.Clock.Now()
	f := r.fights[key]
	if f == nil || now.Sub(f.last) > peace {
		if len(r.fights) > 4096 {
			r.endOldFights(now)
		}
		f = &fight{began: now}
		r.fights[key] = f
	}
	if f.repairs >= freeRepairs {
		pause := min(repairPause<<min(f.repairs-freeRepairs, 10), maxRepairPause)
		if wait = pause - now.Sub(f.last); wait > 0 {
			return wait, f.began
		}
	}
	f.repairs++
	f.last = now
	return 0, f.began
}

func (r *Reconciler) endOldFights(now time.Time) {
	for key, f := range r.fights {
		if now.Sub(f.last) > peace {
			delete(r.fights, key)
		}
	}
}

// forgive takes the mark of drift from a want whose key is well again, so that
// the next drift is seen as a new one.
func (r *Reconciler) forgive(key pipeline.Key) {
	r.Index.Update(key, func(w *known.Want) { w.Drift = "" })
}

// dropNotice takes the notice of a drift out of the plan whose repair waits.
func dropNotice(p *plan.Plan, key string) {
	left := p.Notices[:0]
	for _, n := range p.Notices {
		if n.Reason != pipeline.ReasonDrifted || n.Key != key {
			left = append(left, n)
		}
	}
	p.Notices = left
}
