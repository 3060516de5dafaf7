package reconcile

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// removal is a key that the writer was told to take out.
type removal struct {
	uid   types.UID
	epoch int64
	at    time.Time
}

// remove tells the writer that a pair was taken out. The sequence of the
// tombstone orders that among the results of the key.
func (r *Reconciler) remove(ctx context.Context, o *observe.Object, key string, seq uint64) error {
	k := pipeline.Key{Namespace: o.Namespace, Name: o.Name, Key: key}
	if seq == 0 {
		var err error
		if seq, err = r.retract(ctx, k); err != nil {
			return err
		}
	}
	epoch := r.Index.Epoch()
	ctx, span := r.Tracer.Publish(ctx, pipeline.KindRemoved, k)
	defer span.End()
	tell(span, removed)
	if err := r.Client.PublishResult(ctx, plan.Removed(o, key, epoch, seq)); err != nil {
		failed(span, err)
		return err
	}
	r.Metrics.removed()
	r.report(span, k, removed, seq)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.removals) > maxMemory {
		maps.DeleteFunc(r.removals, func(_ pipeline.Key, said removal) bool { return r.Clock.Since(said.at) > r.Repeat })
	}
	r.removals[k] = removal{uid: o.UID, epoch: epoch, at: r.Clock.Now()}
	return nil
}

// dropSaid takes removals out of the plan that the writer was told of a short
// while ago. It returns when to look whether the writer has made them.
func (r *Reconciler) dropSaid(o *observe.Object, p *plan.Plan) (again time.Duration) {
	if len(p.Remove) == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	epoch := r.Index.Epoch()
	left := p.Remove[:0]
	for _, key := range p.Remove {
		again = soonest(again, r.Repeat)
		said, ok := r.removals[pipeline.Key{Namespace: o.Namespace, Name: o.Name, Key: key}]
		if !ok || said.uid != o.UID || said.epoch != epoch {
			left = append(left, key)
			continue
		}
		if wait := r.Repeat - r.Clock.Since(said.at); wait > 0 {
			again = soonest(again, wait)
		} else {
			left = append(left, key)
		}
	}
	p.Remove = left
	return again
}
