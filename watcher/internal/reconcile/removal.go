package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/backoff"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// removal is a key that the writer was asked to take out.
type removal struct {
	uid   types.UID
	epoch int64
	at    time.Time
}

// remove publishes that a pair was taken out. The sequence of the
// tombstone orders that among the results of the key.
func (r *Reconciler) remove(ctx context.Context, o *annotated.Object, key string, seq uint64) error {
	k := wantindex.KeyOf(o.NamespacedName, key)
	if seq == 0 {
		var err error
		if seq, err = r.retract(ctx, k, r.deps.Client.PublishRemoval); err != nil {
			return err
		}
	}
	epoch := r.deps.Index.Epoch()
	_, err := r.traced(ctx, pipeline.KindRemoved, k, removed, func(ctx context.Context) (uint64, error) {
		return seq, r.deps.Client.PublishResult(ctx, plan.Removed(o, key, epoch, seq))
	})
	if err != nil {
		return err
	}
	r.deps.Metrics.removals.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	if o.Status.Of(key).Written() && !r.sentBefore(o, key) {
		r.limiter.sent = append(r.limiter.sent, now)
	}
	r.removals.put(k, removal{uid: o.UID, epoch: epoch, at: now})
	return nil
}

// NoteRemoval notes that a watcher before this one has published the removal of a
// key, in the stream of that epoch.
func (r *Reconciler) NoteRemoval(key pipeline.Key, epoch int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, own := r.removals.of[key]; !own {
		r.removals.put(key, removal{epoch: epoch, at: r.deps.Clock.Now()})
	}
}

// dropSent takes removals out of the plan that the writer was asked for a short
// while ago. It returns when to look whether the writer has made them.
func (r *Reconciler) dropSent(o *annotated.Object, p *plan.Plan) (again time.Duration) {
	if len(p.Remove) == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	epoch := r.deps.Index.Epoch()
	left := p.Remove[:0]
	for _, key := range p.Remove {
		again = backoff.Soonest(again, r.config.Repeat)
		sent, ok := r.removals.of[wantindex.KeyOf(o.NamespacedName, key)]
		if !ok || sent.uid != o.UID || sent.epoch != epoch {
			left = append(left, key)
			continue
		}
		if wait := r.config.Repeat - r.deps.Clock.Since(sent.at); wait > 0 {
			again = backoff.Soonest(again, wait)
		} else {
			left = append(left, key)
		}
	}
	p.Remove = left
	return again
}
