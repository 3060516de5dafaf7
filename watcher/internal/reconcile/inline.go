package reconcile

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// maxRequestPause is the longest pause before the writer is asked once more.
const maxRequestPause = time.Hour

// request is what the writer was asked to bring an object in line with.
type request struct {
	uid types.UID
	// explain is what the status should have, and remove the keys that should go.
	explain [sha256.Size]byte
	remove  []string
	epoch   int64
	at      time.Time
	times   int
}

// requestOf returns what a plan asks the writer for.
func requestOf(o *annotated.Object, p *plan.Plan) request {
	text := strings.Join(append(slices.Clone(p.Occupied), p.Problem), "\x00")
	return request{uid: o.UID, explain: sha256.Sum256([]byte(text)), remove: p.Remove}
}

// same reports whether two requests ask for the same.
func (s request) same(other request) bool {
	return s.uid == other.uid && s.explain == other.explain && slices.Equal(s.remove, other.remove)
}

// pause returns how long the writer has. It may be kept from writing, or somebody
// may take out what it writes, so that it grows.
func (s request) pause(repeat time.Duration) time.Duration {
	return min(repeat<<min(s.times-1, 10), max(repeat, maxRequestPause))
}

// dropRequested takes out of the plan what the writer was asked for a short while
// ago. It returns when to look whether the object is in line.
func (r *Reconciler) dropRequested(name types.NamespacedName, o *annotated.Object, p *plan.Plan) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, ok := r.requests.of[name]
	same := ok && o != nil && sent.same(requestOf(o, p))
	if !p.Report && len(p.Remove) == 0 {
		// What is in line may be taken out again, as by a controller that resets
		// annotations: the pause goes on growing then.
		if !same || r.requests.over(sent) {
			delete(r.requests.of, name)
		}
		return 0
	}
	if !same || sent.epoch != r.deps.Index.Epoch() {
		delete(r.requests.of, name)
		return r.config.Repeat
	}
	if wait := sent.pause(r.config.Repeat) - r.deps.Clock.Since(sent.at); wait > 0 {
		p.Report, p.Remove = false, nil
		return wait
	}
	return r.config.Repeat
}

// bringInLine asks the writer to bring an object in line with its annotations.
func (r *Reconciler) bringInLine(ctx context.Context, o *annotated.Object, p *plan.Plan) error {
	key := wantindex.KeyOf(o.NamespacedName, status.ObjectKey)
	_, err := r.traced(ctx, pipeline.KindReconcile, key, inLine, func(ctx context.Context) (uint64, error) {
		return 0, r.deps.Client.PublishResult(ctx, plan.Reconcile(o, len(p.Remove) > 0))
	})
	if err != nil {
		return err
	}
	r.deps.Metrics.requests.Inc()
	r.deps.Metrics.removals.Add(float64(len(p.Remove)))
	r.mu.Lock()
	defer r.mu.Unlock()
	next := requestOf(o, p)
	next.epoch, next.at, next.times = r.deps.Index.Epoch(), r.deps.Clock.Now(), r.requests.of[o.NamespacedName].times+1
	if len(p.Remove) > 0 && r.config.MaxRemovals.Keys > 0 {
		r.limiter.add(o.Namespace, next.at, len(r.unsent(o)))
	}
	r.requests.put(o.NamespacedName, next)
	return nil
}
