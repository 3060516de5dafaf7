// Package reconcile carries out the plan for one ConfigMap.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Objects are the annotated ConfigMaps.
type Objects interface {
	// Listed reports whether a namespace has been listed. Only then is a missing object deleted.
	Listed(namespace string) bool
	// Each holds a lock while it calls visit.
	Each(visit func(*annotated.Object))
}

// Config of a Reconciler.
type Config struct {
	// Coalesce is the minimum time between two publishes for an object, so that a burst of edits
	// becomes few publishes.
	Coalesce time.Duration
	// Repeat is how long the writer has to sync an object before the first repeated message. It
	// doubles with each message.
	Repeat time.Duration
	// Installation marks the wants of this watcher and its standbys (empty: unknown).
	Installation string
	// MaxRemovals limits the removals of a namespace within a minute.
	MaxRemovals MaxRemovals
}

// Deps are the dependencies of a Reconciler.
type Deps struct {
	Objects Objects
	// Object returns an object within the quota of its namespace, or nil.
	Object func(types.NamespacedName) *annotated.Object
	Index  *wantindex.Index
	// Backlog bounds undelivered messages.
	Backlog *Backlog
	Client  *pipeline.Client
	// Clock is the machine's clock, for all pauses.
	Clock clock.PassiveClock
	// Record is the method of kube.Recorder.
	Record func(context.Context, kube.Event) (written bool, short *budget.Shortage, err error)
	// Signer signs wants (nil: they are not signed).
	Signer *signature.Signer
	// BrokerClock is the clock of the broker, for the times of wants.
	BrokerClock clock.PassiveClock
	// Tracer creates a span for each publish (nil: none).
	Tracer  *tracing.Tracer
	Log     zerolog.Logger
	Metrics *Metrics
}

// Reconciler publishes the differences between objects and the stream. Concurrent calls must be
// about different objects.
type Reconciler struct {
	config Config
	deps   Deps

	lines *process.SampledLog
	// others logs once that there are keys of other installations.
	others sync.Once

	pacing  *pacing
	notices *notices
	bodies  *pipeline.Bodies
}

// New returns a reconciler.
func New(c Config, d Deps) *Reconciler {
	lines := process.NewSampledLog(d.Log)
	return &Reconciler{
		config: c, deps: d, lines: lines, pacing: newPacing(c, d.Clock, d.Index.Epoch, brake{
			limit: c.MaxRemovals, clock: d.Clock, each: d.Objects.Each, gauge: d.Metrics.stoppedRemovals,
			log: d.Log, lines: lines,
		}),
		notices: &notices{
			record: d.Record, emitted: d.Metrics.events, log: d.Log, coalesce: c.Coalesce,
			objects: map[types.NamespacedName]*noticesOf{},
		},
		bodies: d.Client.Bodies(func(err error) {
			d.Log.Warn().Err(err).Msg("the history was not read, so pinned keys are fetched for a minute")
		}),
	}
}

// Reconcile reconciles one object. It returns the time until the next call (0: when it changes), and
// an error if a retry makes sense.
func (r *Reconciler) Reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	o := r.deps.Object(name)
	if o == nil && !r.deps.Objects.Listed(name.Namespace) {
		return 0, nil // it may exist; the audit tries again
	}
	if o != nil && o.OtherAskers != nil {
		r.others.Do(func() {
			process.LogObject(r.deps.Log.Warn(), name.Namespace, name.Name).Any("annotations", o.OtherAskers).
				Msg("ignoring keys of annotations that this watcher does not read: another installation reads them, or " +
					"--annotation-keys has changed; `curlctl doctor` lists them")
		})
	}
	p := plan.Make(o, r.deps.Index.Wants(name), r.deps.Index.Epoch())
	r.recordResults(name, p)
	due, again := r.pacing.due(name, o, p)
	if due != nil {
		r.leavePinsToWriter(ctx, o, due)
		changed := r.notices.queue(name, o, due.Notices)
		var done bool
		if done, err = r.carryOut(ctx, name, o, due); changed || done {
			r.pacing.recordPublish(name)
		}
	}
	later, unwritten := r.notices.emit(ctx, name)
	return queue.Soonest(again, later), errors.Join(err, unwritten)
}

// pinsTimeout is the maximum time to look for the pinned bodies of an object in the history.
const pinsTimeout = 2 * time.Second

// leavePinsToWriter asks the writer, instead of a fetcher, for the keys whose pinned body is in the history. Their
// wants only set the refresh timer. If the body is gone or forged when the writer looks, the audit finds the key. A
// fetcher still gets keys that hold the body, because their URL changed or fails, and keys with a copied status, which
// the writer does not trust. Only the first keys are looked for, because each takes a request.
func (r *Reconciler) leavePinsToWriter(ctx context.Context, o *annotated.Object, p *plan.Plan) {
	if !slices.ContainsFunc(p.Publish, func(w plan.Publication) bool { return w.GetSha256() != "" }) {
		return // without a timer
	}
	ctx, cancel := context.WithTimeout(ctx, pinsTimeout)
	defer cancel()
	lookups := 0
	for _, w := range p.Publish {
		shown, asked := o.View(w.GetKey()), w.Cause == v1.Cause_CAUSE_NOW || w.Cause == v1.Cause_CAUSE_AUDIT
		held := shown.Holds(w.GetSha256()) && !shown.Entry.Mismatched()
		if w.GetSha256() == "" || w.GetCached() != nil || asked || held || shown.Entry.Copied(o.UID) ||
			lookups == pipeline.MaxPinsFilled {
			continue
		}
		lookups++
		if r.bodies.Has(ctx, w.GetNamespace(), w.GetSha256()) {
			w.Cached, p.AskWriter = &v1.Cached{Sha256: w.GetSha256()}, true
		}
	}
}

// recordResults records in the index which wants have a result in the object.
func (r *Reconciler) recordResults(name types.NamespacedName, p plan.Plan) {
	for _, key := range p.Answered {
		r.deps.Index.RecordAnswer(wantindex.KeyOf(name, key))
	}
	for _, key := range p.InSync {
		r.deps.Index.RecordInSync(wantindex.KeyOf(name, key))
	}
}

// carryOut carries out a plan, and reports whether it published anything. An error of one key does not
// delay the others, unless the namespace has its share of the wants. The writer is asked even then, because
// the next plan no longer has the published wants, whose pinned bodies the writer fills in.
func (r *Reconciler) carryOut(
	ctx context.Context, name types.NamespacedName, o *annotated.Object, p *plan.Plan,
) (done bool, err error) {
	var errs []error
	note := func(err error) {
		done = done || err == nil
		errs = append(errs, err)
	}
	var full error
	room := func() bool { // once full, the whole plan comes back
		if full == nil {
			full = r.deps.Backlog.Check(name.Namespace)
		}
		return full == nil
	}
	for i := 0; i < len(p.Retract) && room(); i++ {
		note(r.retract(ctx, wantindex.KeyOf(name, p.Retract[i])))
	}
	for i := 0; i < len(p.Publish) && room(); i++ {
		note(r.publish(ctx, p.Publish[i]))
	}
	if p.AskWriter || len(p.Remove) > 0 {
		note(r.requestSync(ctx, o, p))
	}
	return done, errors.Join(append(errs, full)...)
}

// publish replaces the want in the stream.
func (r *Reconciler) publish(ctx context.Context, w plan.Publication) error {
	w.Installation = r.config.Installation
	key := pipeline.KeyOf(w.Want)
	began, cause := r.deps.Clock.Now(), pipeline.CauseName(w.Cause)
	seq, err := r.traced(ctx, pipeline.KindWant, key, cause, func(ctx context.Context) (uint64, error) {
		return r.put(ctx, key, w)
	})
	if err != nil {
		return err
	}
	r.deps.Index.Put(key, wantindex.FromHashed(w.Want, w.RequestHash, seq, r.deps.BrokerClock.Now()))
	r.deps.Backlog.Add(key.Namespace, seq)
	if isRepair(w) {
		r.pacing.repaired(key)
	}
	r.deps.Metrics.wants.WithLabelValues(cause).Inc()
	r.deps.Metrics.latency.Observe(r.deps.Clock.Since(began).Seconds())
	return nil
}

// put publishes a want whose results are newer than the object's fence. If the stream was restored
// to an earlier state, its sequence may be lower, so the want gets a later epoch.
func (r *Reconciler) put(ctx context.Context, key pipeline.Key, w plan.Publication) (uint64, error) {
	publish := func(last uint64) (uint64, error) {
		// Even without an acknowledgement, the stream may have the want. It must be retracted if the
		// object is deleted before the next try.
		r.deps.Index.Reserve(key, r.deps.BrokerClock.Now())
		r.deps.Signer.Sign(w.Want)
		return r.deps.Client.PublishWant(ctx, w.Want, last)
	}
	seq, err := r.overwrite(ctx, key, w.Last, publish)
	if err != nil {
		return 0, err
	}
	if err := r.rejectResolved(ctx, key, w, seq); err != nil {
		return 0, err
	}
	if epoch := w.After.EpochAfter(w.GetEpoch(), seq); epoch != w.GetEpoch() {
		process.LogKey(r.deps.Log.Warn(), key).
			Msg("the stream of requests is younger than the status of the object: it was restored, or a clock is wrong")
		w.Epoch = epoch
		return r.overwrite(ctx, key, seq, publish)
	}
	return seq, nil
}

// rejectResolved returns an error that wraps pipeline.ErrSuperseded if another watcher was faster
// and the object already has a result of its want. A restored stream can give the same sequence to
// our want, so only the message itself shows its publisher.
func (r *Reconciler) rejectResolved(ctx context.Context, key pipeline.Key, w plan.Publication, seq uint64) error {
	if (w.After != status.Fence{Epoch: w.GetEpoch(), Seq: seq}) {
		return nil
	}
	have, at, err := r.deps.Client.LastWant(ctx, key)
	if err != nil || at != seq || have == nil || proto.Equal(have, w.Want) {
		return err
	}
	return r.adopt(key, have, at)
}

// adopt adds another watcher's want to the index. Its error makes the session reconcile the object
// again.
func (r *Reconciler) adopt(key pipeline.Key, have *v1.Want, at uint64) error {
	r.deps.Index.Put(key, wantindex.FromWant(have, r.deps.Index.Epoch(), at, r.deps.BrokerClock.Now()))
	return fmt.Errorf("publish for %s: %w", key, pipeline.ErrSuperseded)
}

// retract publishes a tombstone over the known want.
func (r *Reconciler) retract(ctx context.Context, key pipeline.Key) error {
	known, _ := r.deps.Index.Want(key)
	seq, err := r.traced(ctx, pipeline.KindWant, key, tombstone, func(ctx context.Context) (uint64, error) {
		return r.overwrite(ctx, key, known.Fence.Seq, func(last uint64) (uint64, error) {
			return r.deps.Client.PublishTombstone(ctx, key, last)
		})
	})
	if err != nil {
		return err
	}
	r.deps.Index.Drop(key)
	r.deps.Backlog.Add(key.Namespace, seq)
	r.deps.Metrics.wants.WithLabelValues(tombstone).Inc()
	return nil
}

// overwrite publishes with a compare-and-set. If the stream has an unexpected message, overwrite
// replaces it unless it is a want. A want changes the plan, so the caller gets pipeline.ErrSuperseded.
func (r *Reconciler) overwrite(
	ctx context.Context, key pipeline.Key, last uint64, publish func(last uint64) (uint64, error),
) (uint64, error) {
	for range 3 {
		seq, err := publish(last)
		if !errors.Is(err, pipeline.ErrSuperseded) {
			return seq, err
		}
		r.deps.Metrics.conflicts.Inc()
		have, at, err := r.deps.Client.LastWant(ctx, key)
		switch {
		case errors.Is(err, pipeline.ErrNoMessage):
			at = 0
		case err != nil && !errors.Is(err, pipeline.ErrMalformed):
			return 0, err
		case have != nil:
			return 0, r.adopt(key, have, at)
		}
		r.deps.Index.Drop(key)
		last = at
	}
	// Not ErrSuperseded, because no other message explains the conflict.
	return 0, fmt.Errorf("publish for %s: %w", key, pipeline.ErrInFlight)
}

// requestSync asks the writer to bring an object in line with its annotations.
func (r *Reconciler) requestSync(ctx context.Context, o *annotated.Object, p *plan.Plan) error {
	key := wantindex.KeyOf(o.NamespacedName, status.ObjectKey)
	_, err := r.traced(ctx, pipeline.KindSync, key, syncRequest, func(ctx context.Context) (uint64, error) {
		return 0, r.deps.Client.PublishResult(ctx, plan.Sync(o, len(p.Remove) > 0))
	})
	if err != nil {
		return err
	}
	r.deps.Metrics.syncs.Inc()
	r.deps.Metrics.removals.Add(float64(len(p.Remove)))
	r.pacing.recordSync(o, p)
	return nil
}

// Errors of publishes, in spans.
const (
	superseded  = "superseded"
	unpublished = "unpublished"
)

// traced calls publish in its own span and logs the message, rate-limited by process.SampledLog.
func (r *Reconciler) traced(
	ctx context.Context, kind pipeline.Kind, key pipeline.Key, cause string,
	publish func(context.Context) (seq uint64, err error),
) (uint64, error) {
	ctx, span := r.deps.Tracer.Publish(ctx, kind, key)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(tracing.Cause.String(cause))
	}
	seq, err := publish(ctx)
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		tracing.Fail(span, superseded)
	case err != nil:
		tracing.Fail(span, unpublished)
	default:
		if line := r.lines.Line(zerolog.DebugLevel, cause); line != nil {
			process.LogKey(tracing.Stamp(line, span.SpanContext()), key).
				Str("cause", cause).Uint64("sequence", seq).Msg("published")
		}
	}
	return seq, err
}
