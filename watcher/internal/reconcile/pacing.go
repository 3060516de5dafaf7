package reconcile

import (
	"crypto/sha256"
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

	mu        sync.Mutex
	published memory[types.NamespacedName, time.Time]
	repairs   memory[pipeline.Key, *queue.Repairs]
	syncs     memory[types.NamespacedName, sentSync]
	removals  removalLimiter
}

func newPacing(c Config, now clock.PassiveClock, epoch func() int64, removals removalLimiter) *pacing {
	p := &pacing{
		coalesce: c.Coalesce, repeat: c.Repeat, clock: now, epoch: epoch, removals: removals,
		published: newMemory[types.NamespacedName](func(at time.Time) bool { return now.Since(at) > c.Coalesce }),
		repairs:   newMemory[pipeline.Key](func(r *queue.Repairs) bool { return r.Over(now.Now()) }),
		syncs: newMemory[types.NamespacedName](func(s sentSync) bool {
			return now.Since(s.at) > 2*max(c.Repeat, maxSyncPause)
		}),
	}
	p.removals.requested = p.requestedRemovals
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
	again = p.removals.check(o, &todo)
	if len(todo.Publish)+len(todo.Retract)+len(todo.Remove)+len(todo.Notices) > 0 || todo.AskWriter {
		if at, ok := p.published.entries[name]; ok && p.clock.Since(at) < p.coalesce {
			return nil, queue.Soonest(again, p.coalesce-p.clock.Since(at))
		}
	}
	if o != nil {
		again = queue.Soonest(again, p.delayRepairs(name, o.SeenAt, &todo))
	}
	return &todo, queue.Soonest(again, p.dropSent(name, o, &todo))
}

// requestedRemovals returns the keys of an object that the writer was asked to remove. The caller holds the lock.
func (p *pacing) requestedRemovals(o *annotated.Object) []string {
	if sent := p.syncs.entries[o.NamespacedName]; sent.uid == o.UID {
		return sent.remove
	}
	return nil
}

// recordPublish records a publish for an object.
func (p *pacing) recordPublish(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published.put(name, p.clock.Now())
}

// maxSyncPause is the maximum pause before a message to the writer is repeated.
const maxSyncPause = time.Hour

// sentSync is the last message that asked the writer to sync an object.
type sentSync struct {
	uid types.UID
	// explain is a digest of the problems for the status, and remove has the keys to remove.
	explain [sha256.Size]byte
	remove  []string
	epoch   int64
	at      time.Time
	times   int
}

// syncOf returns the message that a plan needs.
func syncOf(o *annotated.Object, p *plan.Plan) sentSync {
	text := p.Problem + "\x00" + strings.Join(p.Foreign, "\x00")
	return sentSync{uid: o.UID, explain: sha256.Sum256([]byte(text)), remove: p.Remove}
}

// same reports whether two messages have the same content.
func (s sentSync) same(other sentSync) bool {
	return s.uid == other.uid && s.explain == other.explain && slices.Equal(s.remove, other.remove)
}

// pause returns the pause before the message is repeated. It grows because the writer may lack
// permissions, or another controller may revert its changes.
func (s sentSync) pause(repeat time.Duration) time.Duration {
	return min(repeat<<min(s.times-1, 10), max(repeat, maxSyncPause))
}

// dropSent removes a recent message to the writer from the plan. It returns the time until the
// next check of the object. The caller holds the lock.
func (p *pacing) dropSent(name types.NamespacedName, o *annotated.Object, todo *plan.Plan) (again time.Duration) {
	sent, ok := p.syncs.entries[name]
	same := ok && o != nil && sent.same(syncOf(o, todo))
	if !todo.AskWriter && len(todo.Remove) == 0 {
		// The pause keeps growing if another controller keeps reverting the writer's changes.
		if !same || p.syncs.expired(sent) {
			delete(p.syncs.entries, name)
		}
		return 0
	}
	if !same || sent.epoch != p.epoch() {
		delete(p.syncs.entries, name)
		return p.repeat
	}
	if wait := sent.pause(p.repeat) - p.clock.Since(sent.at); wait > 0 {
		todo.AskWriter, todo.Remove = false, nil
		return wait
	}
	return p.repeat
}

// recordSync records a message to the writer.
func (p *pacing) recordSync(o *annotated.Object, todo *plan.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := syncOf(o, todo)
	next.epoch, next.at = p.epoch(), p.clock.Now()
	next.times = p.syncs.entries[o.NamespacedName].times + 1
	if len(todo.Remove) > 0 {
		p.removals.record(o)
	}
	p.syncs.put(o.NamespacedName, next)
}

// settling is the resolution of the times in managedFields.
const settling = time.Second

// delayRepairs removes repairs from the plan that follow the last ones of the same key too soon, so
// that a conflict with another controller causes no hot loop. One Event replaces the Event of each drift.
// A check that settles a fingerprint waits until its second is over: the object was seen at that time. It
// returns the time until the next repair. The caller holds the lock.
func (p *pacing) delayRepairs(
	name types.NamespacedName, seen time.Time, todo *plan.Plan,
) (again time.Duration) {
	now := p.clock.Now()
	todo.Notices = slices.DeleteFunc(todo.Notices, func(n plan.Notice) bool {
		r := p.repairs.entries[wantindex.KeyOf(name, n.Key)]
		return n.Reason == failure.ReasonDrifted && r.Limited(now)
	})
	todo.Publish = slices.DeleteFunc(todo.Publish, func(w plan.Publication) bool {
		r := p.repairs.entries[pipeline.KeyOf(w.Want)]
		if age := now.Sub(seen); annotation.Settled(w.GetFingerprint()) && age >= 0 && age < settling {
			again = queue.Soonest(again, settling-age)
			return true
		}
		if !isRepair(w) || !r.Limited(now) {
			return false
		}
		if !r.Reported && !strings.HasPrefix(w.GetFingerprint(), annotation.AncientManager) {
			r.Reported = true
			manager := annotation.Ownership{Fingerprint: w.GetFingerprint()}.Manager()
			todo.Notices = append(todo.Notices, plan.Notice{
				Reason: failure.ReasonRepairBackOff, Key: w.Key, Occurrence: w.Key,
				Note: sentence.Contested(w.Key, manager) + "; repeated changes are repaired at growing intervals",
			})
		}
		wait := r.Wait(now)
		again = queue.Soonest(again, wait)
		return wait > 0
	})
	return again
}

// repaired counts a repair.
func (p *pacing) repaired(key pipeline.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	r := p.repairs.entries[key]
	if r == nil {
		r = &queue.Repairs{}
		p.repairs.put(key, r)
	}
	r.Count(now)
}

// isRepair reports whether a want repairs a drifted key, other than by a second look.
func isRepair(w plan.Publication) bool {
	return w.Cause == v1.Cause_CAUSE_DRIFT && !annotation.Settled(w.GetFingerprint())
}

// maxMemory is the size at which a memory is first cleaned.
const maxMemory = 4096

// memory is a map that drops old entries each time its size has doubled, so cleaning costs no more
// than adding.
type memory[K comparable, V any] struct {
	entries map[K]V
	// cleanAt is the size at which it is cleaned next.
	cleanAt int
	expired func(V) bool
}

func newMemory[K comparable, V any](expired func(V) bool) memory[K, V] {
	return memory[K, V]{entries: map[K]V{}, cleanAt: maxMemory, expired: expired}
}

// put adds or replaces an entry.
func (m *memory[K, V]) put(key K, entry V) {
	if len(m.entries) >= m.cleanAt {
		maps.DeleteFunc(m.entries, func(_ K, v V) bool { return m.expired(v) })
		m.cleanAt = max(maxMemory, 2*len(m.entries))
	}
	m.entries[key] = entry
}
