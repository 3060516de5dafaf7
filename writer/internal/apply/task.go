package apply

import (
	"context"
	"errors"
	"slices"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/cache"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// task is one batch on its way into its object.
type task struct {
	*Applier
	ref   types.NamespacedName
	items []plan.Item

	// object as it is known; nil when it does not exist.
	object *plan.Object
	// known: object is good enough to plan for.
	known bool
	// obstacle that the API server has named.
	obstacle plan.Obstacle
}

// start takes the newest knowledge that costs no request.
func (t *task) start() {
	cached, found := t.objects.Get(t.ref)
	if found && t.covers(cached.ResourceVersion) {
		t.object, t.known = t.config.Decoder.Decode(cached, plan.Remembered), true
		return
	}
	t.objects.Drop(t.ref)
	if t.object, t.known = plan.Assume(t.items); t.known {
		t.known = t.signed()
	}
}

// signed reports whether the watcher has signed all wants. Others may be forged by
// whoever publishes results, so that only the live object counts.
func (t *task) signed() bool {
	for _, item := range t.items {
		err := t.deps.Signatures.Verify(item.Result.GetWant())
		if err == nil {
			continue
		}
		if _, logged := t.doubted.LoadOrStore(err, true); !logged {
			t.deps.Log.Warn().Err(err).Msg("reading objects before they are written, which is slower; see --trusted-keys here and --signing-key of the watcher")
		}
		return false
	}
	return true
}

// covers reports whether no result is about a later version of the object.
func (t *task) covers(version string) bool {
	for _, item := range t.items {
		seen := item.Result.GetWant().GetResourceVersion()
		if seen != "" && seen != version && !cache.Newer(version, seen) {
			return false
		}
	}
	return true
}

// attempt plans, and patches if there is anything to patch. It is not done when
// the object turns out to be another than was planned for.
func (t *task) attempt(ctx context.Context) (outcomes []Outcome, done bool) {
	p, err := t.plan(ctx)
	if err != nil {
		return t.handleFailure(ctx, err), true
	}
	if p.Empty() {
		return t.finish(ctx, p), true
	}
	switch full := p.TooLargeFor(t.object); {
	case full && len(t.items) > 1:
		return t.liveOneByOne(ctx), true
	case full: // the API server need not be asked
		return t.handleRefusal(ctx, p, plan.NoRoom, errNoRoom)
	}
	if kind, short := t.budgets.take(t.ref.Namespace, p); short != nil {
		return t.overBudget(ctx, kind, short), true
	}
	err = t.patch(ctx, p)
	switch apiserver.Classify(err) {
	case apiserver.OK:
		return t.finish(ctx, p), true
	case apiserver.Conflict:
		t.forget()
		return nil, false
	case apiserver.Gone:
		t.learn(nil)
		return nil, false
	case apiserver.StatusTooLarge:
		if t.object.Freshness != plan.Live {
			t.forget() // how much room is left shows in the object
			return nil, false
		}
		return t.handleRefusal(ctx, p, plan.NoRoom, err)
	case apiserver.Immutable:
		return t.handleRefusal(ctx, p, plan.Immutable, err)
	case apiserver.TooLarge:
		return t.handleRefusal(ctx, p, plan.TooLarge, err)
	case apiserver.Rejected:
		return t.handleRefusal(ctx, p, plan.Rejected, err)
	default:
		return t.handleFailure(ctx, err), true
	}
}

// errNoRoom is what the API server would refuse a patch for.
var errNoRoom = errors.New("the annotations leave no room for a status")

// liveOneByOne applies items one by one, all to the object as it was just read.
func (t *task) liveOneByOne(ctx context.Context) []Outcome {
	outcomes := make([]Outcome, len(t.items))
	for _, i := range plan.Order(t.items) {
		object := *t.object
		one := &task{Applier: t.Applier, ref: t.ref, items: t.items[i : i+1], object: &object, known: true}
		outcomes[i] = one.run(ctx)[0]
	}
	return outcomes
}

// plan plans for the object, which it reads as far as that is needed.
func (t *task) plan(ctx context.Context) (plan.Plan, error) {
	if !t.known {
		if err := t.readMetadata(ctx); err != nil {
			return plan.Plan{}, err
		}
	}
	p := t.decide()
	if p.NeedLive {
		if err := t.readMetadata(ctx); err != nil {
			return plan.Plan{}, err
		}
		p = t.decide()
	}
	if p.NeedValues {
		if err := t.readObject(ctx); err != nil {
			return plan.Plan{}, err
		}
		p = t.decide()
	}
	return p, nil
}

// decide adds what only this process knows, and plans.
func (t *task) decide() plan.Plan {
	if t.object != nil && t.object.Confirmed == nil {
		for _, item := range t.items {
			newest := t.confirmed.Get(cacheKey(item))
			if newest == (plan.Confirmation{}) { // as for most
				continue
			}
			if t.object.Confirmed == nil {
				t.object.Confirmed = map[string]plan.Confirmation{}
			}
			t.object.Confirmed[item.Key.Key] = newest
		}
	}
	return t.config.Planner.Plan(t.object, t.items)
}

// handleRefusal deals with a patch that the API server refuses for what it would do.
// What is not possible for a value may be possible for the status, so another
// try records the obstacle.
func (t *task) handleRefusal(ctx context.Context, p plan.Plan, obstacle plan.Obstacle, err error) ([]Outcome, bool) {
	if len(t.items) > 1 {
		return t.oneByOne(ctx, t.ref, t.items), true
	}
	if t.object.Obstacle == plan.NoObstacle && len(p.Values) > 0 {
		t.obstacle, t.object.Obstacle = obstacle, obstacle
		return nil, false
	}
	t.deps.Breaker.Success(t.ref.Namespace)
	return t.giveUp(ctx, err, func(item plan.Item) plan.Event { return plan.Refusal(t.object, item, obstacle) }), true
}

// giveUp gives results up that cannot even be recorded in the status. One Event
// reports it. The results are acknowledged: what the object does not
// hold is wanted again by the watcher.
func (t *task) giveUp(ctx context.Context, err error, eventFor func(plan.Item) plan.Event) []Outcome {
	for _, item := range t.items {
		written := true
		if !item.OfObject() {
			uid := types.UID(item.Result.GetWant().GetUid())
			t.unwritable.Put(cacheKey(item), true)
			// Where even Events are forbidden, the log has to do.
			written, _ = t.emitEvents(ctx, item, uid, []plan.Event{eventFor(item)})
		}
		if written {
			t.resultLine(item, zerolog.WarnLevel, plan.Refused).Err(err).Msg("API server refuses the change")
		}
	}
	return slices.Repeat([]Outcome{{Verdict: plan.Refused}}, len(t.items))
}

// deferAll gives results up for now, for a reason that has nothing to do with
// them. The watcher wants again what the object does not hold.
func (t *task) deferAll(why string) []Outcome {
	t.resultLine(t.items[0], zerolog.WarnLevel, plan.Deferred).Int("results", len(t.items)).Msg(why)
	return slices.Repeat([]Outcome{{Verdict: plan.Deferred}}, len(t.items))
}

// handleFailure deals with a request that the API server did not serve.
func (t *task) handleFailure(ctx context.Context, err error) []Outcome {
	switch apiserver.Classify(err) {
	case apiserver.Forbidden:
		t.deps.Breaker.Deny(t.ref.Namespace, err)
		return t.giveUp(ctx, err, plan.Denial)
	case apiserver.Unavailable:
		after := apiserver.RetryAfter(err)
		t.deps.Breaker.Failure(err, after)
		if faults := t.faults.Get(t.ref) + 1; t.deps.Breaker.Allows() {
			t.faults.Put(t.ref, faults)
			if faults > maxFaults {
				return t.deferAll("requests for this object fail again and again, and others do not; later")
			}
		}
		return slices.Repeat([]Outcome{{Unavailable: true, After: after}}, len(t.items))
	default:
		t.resultLine(t.items[0], zerolog.WarnLevel, plan.Refused).Err(err).Msg("object cannot be read")
		return slices.Repeat([]Outcome{{Verdict: plan.Refused}}, len(t.items))
	}
}

// finish emits the Events of a plan that has been carried out, and logs it.
func (t *task) finish(ctx context.Context, p plan.Plan) []Outcome {
	t.deps.Breaker.Success(t.ref.Namespace)
	t.faults.Drop(t.ref)
	outcomes := make([]Outcome, len(t.items))
	for i, d := range p.Decisions {
		outcomes[i] = Outcome{Verdict: d.Verdict}
		events := d.Events
		if t.restored(t.items[i], d) {
			events = []plan.Event{plan.Restoration(t.items[i])}
		}
		if len(events) > 0 {
			if _, err := t.emitEvents(ctx, t.items[i], t.object.UID, events); err != nil {
				outcomes[i] = Outcome{Unavailable: true}
				continue
			}
		}
		confirmation, key := t.items[i].Confirmation(), cacheKey(t.items[i])
		if d.Confirmed && confirmation.Fence.Newer(t.confirmed.Get(key).Fence) {
			t.confirmed.Put(key, confirmation)
		}
		t.logResult(t.items[i], d)
	}
	return outcomes
}

// cacheKey is the key of an item in caches.
func cacheKey(i plan.Item) cache.Key {
	return cache.Key{UID: types.UID(i.Result.GetWant().GetUid()), Key: i.Key.Key}
}

// restored reports whether an item has brought a value which this process had
// reported as one that cannot be written. The status has nothing of that.
func (t *task) restored(item plan.Item, d plan.Decision) bool {
	good := item.Result.GetContent() != nil || item.Result.GetUnmodified() != nil
	if !good || d.Verdict != plan.Written || !t.unwritable.Get(cacheKey(item)) {
		return false
	}
	t.unwritable.Drop(cacheKey(item))
	return len(d.Events) == 0
}

// emitEvents emits events about an item, and reports whether it wrote any. An error
// is worth another try. An Event that is refused is given up, and counts as written:
// the value is more important, and the log has it.
func (t *task) emitEvents(ctx context.Context, item plan.Item, uid types.UID, events []plan.Event) (written bool, err error) {
	written, err = t.deps.Emitter.Emit(ctx, t.ref, uid, events)
	switch apiserver.Classify(err) {
	case apiserver.OK:
		return written, nil
	case apiserver.Unavailable:
		t.deps.Breaker.Failure(err, apiserver.RetryAfter(err))
		t.line(item, zerolog.DebugLevel, kindEventFailed).Err(err).Msg("Event was not written; trying again")
		return false, err
	default:
		if t.deps.Emitter.Refused() {
			t.line(item, zerolog.ErrorLevel, kindEventRefused).Err(err).Msg("Events are refused; grant create, get and patch of events to the writer's service account")
		}
		return true, nil
	}
}
