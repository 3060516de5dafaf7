// Package reconcile brings the stream of requests in line with one ConfigMap
// at a time: it carries out what package plan decides.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/known"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// Objects is where the reconciler finds the annotated ConfigMaps.
type Objects interface {
	// Get returns an object, or nil when it is gone or does not concern us.
	Get(name types.NamespacedName) *observe.Object
}

// Recorder writes Events.
type Recorder interface {
	// Record writes an Event, unless it was written before.
	Record(ctx context.Context, e kube.Event) error
}

// Config of a reconciler.
type Config struct {
	// Objects, Index, Client and Recorder are what it works with.
	Objects  Objects
	Index    *known.Index
	Client   *pipeline.Client
	Recorder Recorder
	// Epoch of the stream of requests, Unix milliseconds.
	Epoch int64
	// Coalesce is how long after a publish the next one of the same object
	// waits, so that a burst of edits becomes two publishes.
	Coalesce time.Duration
	// Repeat is how long a removal waits for the writer before it is said again.
	Repeat  time.Duration
	Clock   clock.PassiveClock
	Log     zerolog.Logger
	Metrics *Metrics
}

// Reconciler publishes the differences between objects and the stream. It may
// be called for different objects at once, not for the same.
type Reconciler struct {
	Config

	mu        sync.Mutex
	published map[types.NamespacedName]time.Time
	notices   map[types.NamespacedName]*notices
	removals  map[pipeline.Key]removal
	fights    map[pipeline.Key]*fight
}

// removal is a key that the writer was told to take out.
type removal struct {
	uid types.UID
	at  time.Time
}

// New returns a reconciler.
func New(c Config) *Reconciler {
	return &Reconciler{
		Config:    c,
		published: map[types.NamespacedName]time.Time{},
		notices:   map[types.NamespacedName]*notices{},
		removals:  map[pipeline.Key]removal{},
		fights:    map[pipeline.Key]*fight{},
	}
}

// Reconcile looks at one object. It returns how long to wait before looking at
// it again (0: until it changes), or an error that is worth another try soon.
func (r *Reconciler) Reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	o := r.Objects.Get(name)
	p := plan.Make(o, r.Index.Object(name), r.Epoch)
	r.dropSaid(o, &p)
	if len(p.Publish)+len(p.Retract)+len(p.Remove) > 0 {
		if wait := r.tooSoon(name); wait > 0 {
			return wait, r.say(ctx, name)
		}
	}
	again = r.damp(o, &p)
	r.note(name, o, p.Notices)
	for _, key := range p.Settled {
		r.forgive(pipeline.Key{Namespace: name.Namespace, Name: name.Name, Key: key})
	}
	return again, errors.Join(r.carryOut(ctx, name, o, p), r.say(ctx, name))
}

// carryOut publishes what the plan says. One key that fails does not hold up
// the others.
func (r *Reconciler) carryOut(ctx context.Context, name types.NamespacedName, o *observe.Object, p plan.Plan) error {
	var errs []error
	retracted := map[string]uint64{}
	for _, key := range p.Retract {
		seq, err := r.retract(ctx, pipeline.Key{Namespace: name.Namespace, Name: name.Name, Key: key})
		retracted[key] = seq
		errs = append(errs, err)
	}
	for _, key := range p.Remove {
		errs = append(errs, r.remove(ctx, o, key, retracted[key]))
	}
	for _, w := range p.Publish {
		errs = append(errs, r.publish(ctx, w))
	}
	return errors.Join(errs...)
}

// tooSoon returns how long the object has to wait for its next publish, and
// notes that one is made if it need not.
func (r *Reconciler) tooSoon(name types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	if last, ok := r.published[name]; ok {
		if wait := r.Coalesce - now.Sub(last); wait > 0 {
			return wait
		}
	}
	if len(r.published) > 4096 {
		for old, at := range r.published {
			if now.Sub(at) > r.Coalesce {
				delete(r.published, old)
			}
		}
	}
	r.published[name] = now
	return 0
}

// publish publishes a want over what the stream has.
func (r *Reconciler) publish(ctx context.Context, w plan.Want) error {
	key := pipeline.KeyOf(w.Want)
	r.mu.Lock()
	delete(r.removals, key)
	r.mu.Unlock()
	began := r.Clock.Now()
	seq, err := r.overwrite(ctx, key, w.Last, func(last uint64) (uint64, error) {
		return r.Client.PublishWant(ctx, w.Want, last)
	})
	if err != nil {
		return err
	}
	r.Index.Put(key, known.Of(w.Want, seq, r.Clock.Now()))
	r.Metrics.published(w.Want, r.Clock.Since(began))
	r.Log.Debug().Str("namespace", key.Namespace).Str("configmap", key.Name).Str("key", key.Key).
		Str("cause", w.Cause.String()).Uint64("sequence", seq).Msg("published what is wanted")
	return nil
}

// retract publishes a tombstone over the known want and returns its sequence.
func (r *Reconciler) retract(ctx context.Context, key pipeline.Key) (uint64, error) {
	last := r.Index.Object(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})[key.Key].Fence.Seq
	seq, err := r.overwrite(ctx, key, last, func(last uint64) (uint64, error) {
		return r.Client.PublishTombstone(ctx, key, last)
	})
	if err != nil {
		return 0, err
	}
	r.Index.Drop(key)
	r.Metrics.retracted()
	return seq, nil
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
	if err := r.Client.PublishResult(ctx, plan.Removed(o, key, r.Epoch, seq)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removals[k] = removal{uid: o.UID, at: r.Clock.Now()}
	return nil
}

// overwrite publishes with a compare-and-set. When the stream has something
// else than expected, it learns what and, if that is no live want, tries
// again over it; a live want changes the plan, so that is left to the caller.
func (r *Reconciler) overwrite(ctx context.Context, key pipeline.Key, last uint64, publish func(last uint64) (uint64, error)) (uint64, error) {
	for range 3 {
		seq, err := publish(last)
		if !errors.Is(err, pipeline.ErrSuperseded) {
			return seq, err
		}
		r.Metrics.conflict()
		have, at, err := r.Client.LastWant(ctx, key)
		switch {
		case errors.Is(err, pipeline.ErrNoMessage):
			at = 0
		case err != nil && !errors.Is(err, pipeline.ErrMalformed):
			return 0, err
		case have != nil:
			r.Index.Put(key, known.Of(have, at, r.Clock.Now()))
			return 0, fmt.Errorf("publish for %s: %w", key, pipeline.ErrSuperseded)
		}
		r.Index.Drop(key)
		last = at
	}
	return 0, fmt.Errorf("publish for %s: %w", key, pipeline.ErrSuperseded)
}

// dropSaid takes removals out of the plan that the writer was told of a short
// while ago.
func (r *Reconciler) dropSaid(o *observe.Object, p *plan.Plan) {
	if len(p.Remove) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := p.Remove[:0]
	for _, key := range p.Remove {
		said, ok := r.removals[pipeline.Key{Namespace: o.Namespace, Name: o.Name, Key: key}]
		if !ok || said.uid != o.UID || r.Clock.Since(said.at) > r.Repeat {
			left = append(left, key)
		}
	}
	p.Remove = left
}

// isRepair tells whether a want repairs a key that changed hands.
func isRepair(w plan.Want) bool { return w.Cause == v1.Cause_CAUSE_HEALED }
