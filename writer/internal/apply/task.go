package apply

import (
	"context"
	"errors"
	"slices"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// task is one batch for one object.
type task struct {
	*Applier
	ref   types.NamespacedName
	items []plan.Item

	// object is nil if it does not exist.
	object *plan.Object
	// known means that the object is good enough to plan for.
	known  bool
	memory plan.Memory
}

// assumeObject chooses the newest object that needs no request: the cached one, or the one in the wants.
func (t *task) assumeObject() {
	if cached := t.objects.Get(t.ref); cached != nil && t.covers(cached.ResourceVersion) {
		t.object, t.known = t.deps.Decoder.Decode(cached, plan.FromPatch), true
		return
	}
	t.objects.Drop(t.ref)
	if t.object, t.known = t.deps.Decoder.FromWants(t.items); t.known {
		t.known = t.signed()
	}
}

// signed reports whether the watcher has signed all wants. An unsigned one may be forged, so the object must
// be read.
func (t *task) signed() bool {
	for _, item := range t.items {
		err := t.deps.Signatures.Verify(item.Result.GetWant())
		if err == nil {
			continue
		}
		if _, logged := t.logged.LoadOrStore(err, true); !logged {
			t.deps.Log.Warn().Err(err).Msg("reading objects before they are written, which is slower; check --trusted-keys " +
				"of the writer and --signing-key of the watcher")
		}
		return false
	}
	return true
}

// covers reports whether no result is for a later version of the object.
func (t *task) covers(version string) bool {
	for _, item := range t.items {
		seen := item.Result.GetWant().GetResourceVersion()
		if seen == "" || seen == version {
			continue
		}
		if other := kube.ParseVersion(seen); other == 0 || kube.ParseVersion(version) <= other { // not comparable, or later
			return false
		}
	}
	return true
}

// attempt plans and patches. It is not done if it must be repeated, with a newer object or a known obstacle.
func (t *task) attempt(ctx context.Context) (applied []Applied, done bool) {
	p, err := t.plan(ctx)
	if err != nil {
		return t.handleFailure(ctx, err), true
	}
	if p.Empty() {
		return t.finish(ctx, p), true
	}
	switch full := p.TooLargeFor(t.object); {
	case full && len(t.items) > 1:
		return t.oneByOne(ctx, true), true
	case full: // the API server would refuse the patch
		return t.handleRefusal(ctx, p, apiserver.StatusTooLarge, errNoRoom)
	}
	if kind, short := t.budgets.take(t.ref.Namespace, p); short != nil {
		return t.overBudget(ctx, kind, short), true
	}
	return t.conclude(ctx, p, t.patch(ctx, p))
}

// conclude returns what became of a plan whose patch returned err. It is not done if it must be repeated.
func (t *task) conclude(ctx context.Context, p plan.Plan, err error) (applied []Applied, done bool) {
	switch class := apiserver.Classify(err); class {
	case apiserver.OK:
		return t.finish(ctx, p), true
	case apiserver.Stripped:
		t.deps.Breaker.Success(t.ref.Namespace)
		return t.giveUp(ctx, err, t.refusal(class)), true
	case apiserver.Conflict:
		t.forget()
		return nil, false
	case apiserver.Gone:
		t.setObject(nil)
		return nil, false
	case apiserver.StatusTooLarge:
		if t.object.Freshness != plan.Live {
			t.forget() // the live object shows how much room is left
			return nil, false
		}
		return t.handleRefusal(ctx, p, class, err)
	case apiserver.Immutable, apiserver.TooLarge, apiserver.ObjectTooLarge, apiserver.Rejected:
		return t.handleRefusal(ctx, p, class, err)
	default:
		return t.handleFailure(ctx, err), true
	}
}

// errNoRoom stands for the refusal of a patch that is not even sent.
var errNoRoom = errors.New("the annotations leave no room for a status")

// oneByOne applies items one by one, oldest fence first, so that a refused one does not hold up the others. live
// means that the object was just read.
func (t *task) oneByOne(ctx context.Context, live bool) []Applied {
	applied := make([]Applied, len(t.items))
	for _, i := range plan.Order(t.items) {
		one := t.newTask(t.ref, t.items[i:i+1])
		if live {
			one.object, one.known = t.object, true
		} else {
			one.assumeObject()
		}
		if ctx.Err() != nil { // nobody refused it
			applied[i] = one.deferAll("the other results for the object left no time, deferred")[0]
			continue
		}
		applied[i] = one.run(ctx)[0]
	}
	return applied
}

// plan makes a plan, and reads as much of the object as the plan needs.
func (t *task) plan(ctx context.Context) (plan.Plan, error) {
	if !t.known {
		if err := t.readMetadata(ctx); err != nil {
			return plan.Plan{}, err
		}
	}
	for {
		t.memory.Confirmed = t.confirmations()
		p, need := t.config.Planner.Plan(t.object, t.memory, t.items)
		var err error
		switch {
		case need.Live:
			err = t.readMetadata(ctx)
		case need.Values:
			err = t.readObject(ctx)
		case len(need.History) > 0:
			t.history.find(ctx, t.ref.Namespace, need.History, t.memory.History)
		default:
			return p, nil
		}
		if err != nil {
			return plan.Plan{}, err
		}
	}
}

// confirmations returns what this process remembers of the keys of the items.
func (t *task) confirmations() map[string]plan.Confirmation {
	found := map[string]plan.Confirmation{}
	for _, item := range t.items {
		if t.object == nil {
			break
		}
		newest := t.confirmed.Get(keyID{t.object.UID, item.Key.Key}) // not of a deleted object with that name
		if newest != (plan.Confirmation{}) {
			found[item.Key.Key] = newest
		}
	}
	return found
}

// handleRefusal handles a refused patch. The API server may still accept the status, so the next
// attempt only reports the obstacle there.
func (t *task) handleRefusal(ctx context.Context, p plan.Plan, by apiserver.Class, err error) ([]Applied, bool) {
	if len(t.items) > 1 {
		return t.oneByOne(ctx, false), true
	}
	if t.memory.Obstacle == "" && !t.object.Immutable && len(p.Values) > 0 {
		t.memory.Obstacle = by
		return nil, false
	}
	t.deps.Breaker.Success(t.ref.Namespace)
	return t.giveUp(ctx, err, t.refusal(by)), true
}

// refusal returns the Event for each item that the API server refuses.
func (t *task) refusal(by apiserver.Class) func(plan.Item) plan.Event {
	return func(item plan.Item) plan.Event { return plan.Refusal(t.object, item, by) }
}

// giveUp acknowledges results that cannot even be recorded in the status, and emits one Event. The
// audit requests their keys again, at growing intervals.
func (t *task) giveUp(ctx context.Context, err error, eventFor func(plan.Item) plan.Event) []Applied {
	for _, item := range t.items {
		uid := types.UID(item.Result.GetWant().GetUid())
		if !item.OfObject() {
			t.unwritable.Put(keyIDOf(item), true)
		}
		// emitEvents also returns true if Events are forbidden. Then the log is the only report.
		if written, _ := t.emitEvents(ctx, item, uid, []plan.Event{eventFor(item)}); written {
			t.resultLine(item, zerolog.WarnLevel, plan.Refused).Err(err).Msg("refused: by the API server")
		}
	}
	return slices.Repeat([]Applied{{Outcome: plan.Refused}}, len(t.items))
}

// deferAll acknowledges results whose write failed for a reason that is not theirs, such as conflicts. The watcher's
// audit asks for them again.
func (t *task) deferAll(why string) []Applied {
	t.resultLine(t.items[0], zerolog.WarnLevel, plan.Deferred).Int("results", len(t.items)).Msg(why)
	return slices.Repeat([]Applied{{Outcome: plan.Deferred}}, len(t.items))
}

// handleFailure handles a failed read, or a patch that failed for a reason other than its content.
func (t *task) handleFailure(ctx context.Context, err error) []Applied {
	switch apiserver.Classify(err) {
	case apiserver.Forbidden:
		t.deps.Breaker.Deny(t.ref.Namespace, err)
		noToken := apierrors.IsUnauthorized(err)
		return t.giveUp(ctx, err, func(i plan.Item) plan.Event { return plan.Denial(i, noToken) })
	case apiserver.Unavailable, apiserver.Failed:
		faults, down := t.faults.Get(t.ref)+1, t.serverFault(ctx, err) && !t.deps.Breaker.Allows()
		if !down {
			t.faults.Put(t.ref, faults)
		}
		if down || faults < maxFaults {
			return slices.Repeat([]Applied{{After: apiserver.RetryAfter(err)}}, len(t.items))
		}
		return t.giveUp(ctx, err, t.refusal(apiserver.Failed))
	default:
		t.resultLine(t.items[0], zerolog.WarnLevel, plan.Refused).Err(err).Msg("object cannot be read")
		return slices.Repeat([]Applied{{Outcome: plan.Refused}}, len(t.items))
	}
}

// serverFault reports whether the API server is the reason for a failed request, and tells the breaker. If it is ready,
// the object is the reason.
func (t *task) serverFault(ctx context.Context, err error) bool {
	if apiserver.Classify(err) == apiserver.Failed && t.deps.Client.Probe(context.WithoutCancel(ctx)) == nil {
		return false
	}
	t.deps.Breaker.Failure(err, apiserver.RetryAfter(err))
	return true
}

// finish emits the Events and logs the decisions of a completed plan.
func (t *task) finish(ctx context.Context, p plan.Plan) []Applied {
	t.deps.Breaker.Success(t.ref.Namespace)
	t.faults.Drop(t.ref)
	applied := make([]Applied, len(t.items))
	for i, d := range p.Decisions {
		applied[i] = Applied{Outcome: d.Outcome, NewPage: d.NewPage}
		if d.Version { // before anything that can fail, because a retry finds the key written
			t.history.keep(ctx, t.items[i], d.Available)
		}
		events := d.Events
		if t.endsRefusal(t.items[i], d) {
			events = []plan.Event{plan.Recovered(t.items[i])}
		}
		if len(events) > 0 {
			if _, err := t.emitEvents(ctx, t.items[i], t.object.UID, events); err != nil {
				applied[i] = Applied{}
				continue
			}
		}
		confirmation, key := t.items[i].Confirmation(), keyIDOf(t.items[i])
		if d.Confirmed && confirmation.Fence.Newer(t.confirmed.Get(key).Fence) {
			t.confirmed.Put(key, confirmation)
		}
		t.logResult(t.items[i], d)
	}
	return applied
}

// keyIDOf returns the key of an item.
func keyIDOf(i plan.Item) keyID {
	return keyID{UID: types.UID(i.Result.GetWant().GetUid()), Key: i.Key.Key}
}

// endsRefusal reports whether an item wrote a value that this process reported as unwritable. The
// status does not show that.
func (t *task) endsRefusal(item plan.Item, d plan.Decision) bool {
	good := item.Result.GetContent() != nil || item.Result.GetUnmodified() != nil
	if !good || d.Outcome != plan.Written || !t.unwritable.Get(keyIDOf(item)) {
		return false
	}
	t.unwritable.Drop(keyIDOf(item))
	return len(d.Events) == 0
}
