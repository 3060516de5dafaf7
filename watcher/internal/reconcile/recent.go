package reconcile

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// recent is the recent work on one object.
type recent struct {
	// published is the time of the last publish, and sent the last message to the writer.
	published time.Time
	sent      sentSync
	// repairs has the repairs by key.
	repairs map[string]*queue.Repairs
}

// maxSyncPause is the maximum pause before a message to the writer is repeated.
const maxSyncPause = time.Hour

// sentSync is the last message that asked the writer to sync an object.
type sentSync struct {
	uid types.UID
	// explain is a hash of the problems for the status, and remove has the keys to remove.
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
