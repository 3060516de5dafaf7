package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// pacing drops from a plan what must wait: publishes in a burst of edits, repeated repairs, repeated messages to the
// writer, and too many removals at once.
type pacing struct {
	coalesce, repeat time.Duration
	clock            clock.PassiveClock
	// epoch returns the epoch of the stream of requests.
	epoch func() int64

	mu      sync.Mutex
	objects map[types.NamespacedName]*recent
	// cleanAt is the number of objects at which those without recent work are forgotten.
	cleanAt int
	brake   brake
}

func newPacing(c Config, now clock.PassiveClock, epoch func() int64, b brake) *pacing {
	p := &pacing{
		coalesce: c.Coalesce, repeat: c.Repeat, clock: now, epoch: epoch, brake: b,
		objects: map[types.NamespacedName]*recent{}, cleanAt: minClean,
	}
	p.brake.requested = p.requestedRemovals
	return p
}

// due returns the part of a plan to carry out now, and the time until the next check of the object (0: when it
// changes). It returns nil if the last publish for the object was just now. Removals are checked first, because a plan
// may have nothing else.
func (p *pacing) due(
	name types.NamespacedName, o *annotated.Object, todo plan.Plan,
) (_ *plan.Plan, again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := cmp.Or(p.objects[name], &recent{})
	again = p.brake.check(o, &todo)
	if len(todo.Publish)+len(todo.Retract)+len(todo.Remove)+len(todo.Notices) > 0 || todo.AskWriter {
		if wait := p.coalesce - p.clock.Since(r.published); wait > 0 {
			return nil, queue.Soonest(again, wait)
		}
	}
	if o != nil {
		again = queue.Soonest(again, p.delayRepairs(r, o.SeenAt, &todo))
	}
	return &todo, queue.Soonest(again, p.dropSent(r, o, &todo))
}

// dropSent removes a recent message to the writer from the plan. It returns the time until the
// next check of the object. The caller holds the lock.
func (p *pacing) dropSent(r *recent, o *annotated.Object, todo *plan.Plan) (again time.Duration) {
	now, same := p.clock.Now(), o != nil && r.sent.same(syncOf(o, todo))
	if !todo.AskWriter && len(todo.Remove) == 0 {
		// The pause keeps growing if another controller keeps reverting the writer's changes.
		if !same || p.isOver(r.sent, now) {
			r.sent = sentSync{}
		}
		return 0
	}
	if !same || r.sent.epoch != p.epoch() {
		r.sent = sentSync{}
		return p.repeat
	}
	if wait := r.sent.pause(p.repeat) - now.Sub(r.sent.at); wait > 0 {
		todo.AskWriter, todo.Remove = false, nil
		return wait
	}
	return p.repeat
}

// settling is the resolution of the times in managedFields.
const settling = time.Second

// delayRepairs removes repairs from the plan that follow the last ones of the same key too soon, so
// that a conflict with another controller causes no hot loop. One Event replaces the Event of each drift.
// A check that settles a fingerprint waits until its second is over: the object was seen at that time. It
// returns the time until the next repair. The caller holds the lock.
func (p *pacing) delayRepairs(r *recent, seen time.Time, todo *plan.Plan) (again time.Duration) {
	now := p.clock.Now()
	todo.Notices = slices.DeleteFunc(todo.Notices, func(n plan.Notice) bool {
		return n.Reason == failure.ReasonDrifted && r.repairs[n.Key].Limited(now)
	})
	todo.Publish = slices.DeleteFunc(todo.Publish, func(w plan.Publication) bool {
		repairs := r.repairs[w.Key]
		if age := now.Sub(seen); annotation.Settled(w.GetFingerprint()) && age >= 0 && age < settling {
			again = queue.Soonest(again, settling-age)
			return true
		}
		if !isRepair(w) || !repairs.Limited(now) {
			return false
		}
		if !repairs.Reported && !strings.HasPrefix(w.GetFingerprint(), annotation.AncientManager) {
			repairs.Reported = true
			manager := annotation.Ownership{Fingerprint: w.GetFingerprint()}.Manager()
			todo.Notices = append(todo.Notices, plan.Notice{
				Reason: failure.ReasonRepairBackOff, Key: w.Key, Occurrence: w.Key,
				Note: sentence.Contested(w.Key, manager) + "; repeated changes are repaired at growing intervals",
			})
		}
		wait := repairs.Wait(now)
		again = queue.Soonest(again, wait)
		return wait > 0
	})
	return again
}

// isRepair reports whether a want repairs a drifted key, other than by a second look.
func isRepair(w plan.Publication) bool {
	return w.Cause == v1.Cause_CAUSE_DRIFT && !annotation.Settled(w.GetFingerprint())
}

// isOver reports whether a message no longer counts.
func (p *pacing) isOver(s sentSync, now time.Time) bool {
	return now.Sub(s.at) > 2*max(p.repeat, maxSyncPause)
}

// minClean is the number of objects at which they are first cleaned.
const minClean = 4096

// record returns the recent work on an object. Each time the number of objects has doubled, it forgets those without,
// so cleaning costs no more than adding. The caller holds the lock.
func (p *pacing) record(name types.NamespacedName) *recent {
	if r := p.objects[name]; r != nil {
		return r
	}
	if len(p.objects) >= p.cleanAt {
		now := p.clock.Now()
		maps.DeleteFunc(p.objects, func(_ types.NamespacedName, r *recent) bool {
			for _, repairs := range r.repairs {
				if !repairs.Over(now) {
					return false
				}
			}
			return now.Sub(r.published) > p.coalesce && p.isOver(r.sent, now)
		})
		p.cleanAt = max(minClean, 2*len(p.objects))
	}
	r := &recent{repairs: map[string]*queue.Repairs{}}
	p.objects[name] = r
	return r
}

// requestedRemovals returns the keys of an object that the writer was asked to remove. The caller holds the lock.
func (p *pacing) requestedRemovals(o *annotated.Object) []string {
	if r := p.objects[o.NamespacedName]; r != nil && r.sent.uid == o.UID {
		return r.sent.remove
	}
	return nil
}

// recordPublish records a publish for an object.
func (p *pacing) recordPublish(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(name).published = p.clock.Now()
}

// repaired counts a repair.
func (p *pacing) repaired(key pipeline.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	repairs := p.record(wantindex.ObjectOf(key)).repairs
	if repairs[key.Key] == nil {
		repairs[key.Key] = &queue.Repairs{}
	}
	repairs[key.Key].Count(p.clock.Now())
}

// recordSync records a message to the writer.
func (p *pacing) recordSync(o *annotated.Object, todo *plan.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, next := p.record(o.NamespacedName), syncOf(o, todo)
	next.epoch, next.at, next.times = p.epoch(), p.clock.Now(), r.sent.times+1
	if len(todo.Remove) > 0 {
		p.brake.record(o)
	}
	r.sent = next
}
