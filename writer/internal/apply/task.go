package apply

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	// maxTries is how often an object that keeps changing is planned and patched before its results are
	// deferred.
	maxTries = 10
	// conflictPause is the maximum pause between attempts.
	conflictPause = 40 * time.Millisecond
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

func (a *Applier) newTask(ref types.NamespacedName, items []plan.Item) *task {
	return &task{Applier: a, ref: ref, items: items, memory: plan.Memory{
		History: map[string][]byte{}, Altered: map[string]plan.AlteredKey{},
	}}
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

// run carries out plans until the API server accepts one.
func (t *task) run(ctx context.Context) []Applied {
	for range maxTries {
		applied, done := t.attempt(ctx)
		if done {
			return applied
		}
		if t.known {
			continue
		}
		select { // someone else is writing this object
		case <-ctx.Done():
			return t.deferAll("object changes faster than it can be patched, deferred")
		case <-time.After(rand.N(conflictPause)):
		}
	}
	t.deps.Metrics.exhausted.Inc()
	return t.deferAll("object changes faster than it can be patched, deferred")
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
		return t.handleRefusal(ctx, p, plan.StatusTooLarge, errNoRoom)
	}
	if kind, short := t.budgets.take(t.ref.Namespace, p); short != nil && len(t.memory.Altered) == 0 {
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
		return t.giveUp(ctx, err, t.refusal(class.Obstacle())), true
	case apiserver.Altered: // the status must say so
		t.memory.Obstacle = class.Obstacle()
		t.keepVersions(ctx, p)
		return nil, false
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
		return t.handleRefusal(ctx, p, class.Obstacle(), err)
	case apiserver.Immutable, apiserver.TooLarge, apiserver.ObjectTooLarge, apiserver.Rejected:
		return t.handleRefusal(ctx, p, class.Obstacle(), err)
	default:
		return t.handleFailure(ctx, err), true
	}
}

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

// deferAll acknowledges results whose write failed for a reason that is not theirs, such as conflicts. The watcher's
// audit asks for them again.
func (t *task) deferAll(why string) []Applied {
	t.resultLine(t.items[0], zerolog.WarnLevel, plan.Deferred).Int("results", len(t.items)).Msg(why)
	return slices.Repeat([]Applied{{Outcome: plan.Deferred}}, len(t.items))
}

// finish emits the Events and logs the decisions of a completed plan.
func (t *task) finish(ctx context.Context, p plan.Plan) []Applied {
	t.deps.Breaker.Success(t.ref.Namespace)
	t.faults.Drop(t.ref)
	t.keepVersions(ctx, p) // before anything that can fail, because a retry finds the keys written
	applied := make([]Applied, len(t.items))
	for i, d := range p.Decisions {
		applied[i] = Applied{Outcome: d.Outcome, NewPage: d.NewPage}
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

// keepVersions adds the bodies of a patched plan to the history, unless their key has another value.
func (t *task) keepVersions(ctx context.Context, p plan.Plan) {
	for i, d := range p.Decisions {
		if _, altered := t.memory.Altered[t.items[i].Key.Key]; d.Keep && !altered {
			t.history.keep(ctx, t.items[i], d.Offered)
		}
	}
}
