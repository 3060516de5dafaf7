package apply

import (
	"context"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// task is one batch on its way into its object.
type task struct {
	*Applier
	ref   Ref
	items []judge.Item

	// object as it is known; nil when it does not exist.
	object *judge.Object
	// known tells that object may be judged.
	known bool
	// obstacle that the API server has named.
	obstacle judge.Obstacle
}

// start takes the newest knowledge that costs no request.
func (t *task) start() {
	remembered, found := t.memory.get(t.ref)
	if found && !t.covers(remembered.ResourceVersion) {
		found = false // somebody has seen a later version
		t.memory.drop(t.ref)
	}
	if found {
		again := *remembered
		t.object, t.known = &again, true
		return
	}
	t.object, t.known = judge.Assume(t.items)
}

// covers tells whether no result is about a later version of the object.
func (t *task) covers(version string) bool {
	for _, item := range t.items {
		seen := item.Result.GetWant().GetResourceVersion()
		if seen != "" && seen != version && !newer(version, seen) {
			return false
		}
	}
	return true
}

// try judges, and patches if there is anything to patch. It is not done when
// the object turns out to be another than was judged.
func (t *task) try(ctx context.Context) (outcomes []Outcome, done bool) {
	plan, err := t.plan(ctx)
	if err != nil {
		return t.failed(ctx, err), true
	}
	if plan.Empty() {
		return t.finish(ctx, plan), true
	}
	err = t.patch(ctx, plan)
	switch f := classify(err); f {
	case none:
		return t.finish(ctx, plan), true
	case conflict:
		t.forget()
		return nil, false
	case gone:
		t.learn(nil)
		return nil, false
	case statusTooLarge:
		if t.object.Source != judge.Live {
			t.forget() // how much room is left shows in the object
			return nil, false
		}
		return t.hindered(ctx, plan, judge.Rejected, err)
	case immutable:
		return t.hindered(ctx, plan, judge.Immutable, err)
	case tooLarge:
		return t.hindered(ctx, plan, judge.TooLarge, err)
	case rejected:
		return t.hindered(ctx, plan, judge.Rejected, err)
	default:
		return t.failed(ctx, err), true
	}
}

// plan judges the object, which it reads as far as that is needed.
func (t *task) plan(ctx context.Context) (judge.Plan, error) {
	if !t.known {
		if err := t.readMetadata(ctx); err != nil {
			return judge.Plan{}, err
		}
	}
	plan := t.judge()
	if plan.NeedLive && !plan.NeedValues {
		if err := t.readMetadata(ctx); err != nil {
			return judge.Plan{}, err
		}
		plan = t.judge()
	}
	if plan.NeedValues {
		if err := t.readObject(ctx); err != nil {
			return judge.Plan{}, err
		}
		plan = t.judge()
	}
	return plan, nil
}

// judge adds what only this process knows, and judges.
func (t *task) judge() judge.Plan {
	if t.object != nil && t.object.Confirmed == nil {
		t.object.Confirmed = make(map[string]status.Fence, len(t.items))
		for _, item := range t.items {
			t.object.Confirmed[item.Key.Key] = t.confirm.get(t.object.UID, item.Key.Key)
		}
	}
	return t.Judge.Plan(t.object, t.items)
}

// hindered deals with a patch that the API server refuses for what it would
// do. What is not possible for a value is possible for the status, so another
// try says what is in the way.
func (t *task) hindered(ctx context.Context, plan judge.Plan, what judge.Obstacle, err error) ([]Outcome, bool) {
	if len(t.items) > 1 {
		return t.apart(ctx, t.ref, t.items), true
	}
	if t.object.Obstacle == judge.NoObstacle && len(plan.Values) > 0 {
		t.obstacle, t.object.Obstacle = what, what
		return nil, false
	}
	t.Gate.Success(t.ref.Namespace)
	item := t.items[0]
	if t.say(ctx, item, t.object.UID, []judge.Event{judge.Refusal(t.object, item)}) == said {
		t.about(item, zerolog.WarnLevel, "hindered").Err(err).Msg("API server refuses the change; trying again")
	}
	return all(1, Outcome{Retry: Later}), true
}

// failed deals with a request that the API server did not serve.
func (t *task) failed(ctx context.Context, err error) []Outcome {
	switch classify(err) {
	case forbidden:
		t.Gate.Deny(t.ref.Namespace, err)
		for _, item := range t.items {
			// Where even Events are forbidden, the log has to do.
			t.say(ctx, item, types.UID(item.Result.GetWant().GetUid()), []judge.Event{judge.Denial(item)})
		}
		return all(len(t.items), Outcome{Retry: Soon})
	case away:
		after := retryAfter(err)
		t.Gate.Fault(err, after)
		return all(len(t.items), Outcome{Retry: Soon, After: after})
	default:
		t.about(t.items[0], zerolog.WarnLevel, "unreadable").Err(err).Msg("object cannot be read; trying again")
		return all(len(t.items), Outcome{Retry: Later})
	}
}

// finish says what there is to say about a plan that has been carried out.
func (t *task) finish(ctx context.Context, plan judge.Plan) []Outcome {
	t.Gate.Success(t.ref.Namespace)
	outcomes := make([]Outcome, len(t.items))
	for i, d := range plan.Decisions {
		outcomes[i] = Outcome{Verdict: d.Verdict}
		events := d.Events
		if t.restored(t.items[i], d) {
			events = []judge.Event{judge.Restoration(t.items[i])}
		}
		if len(events) > 0 && t.say(ctx, t.items[i], t.object.UID, events) == unsaid {
			outcomes[i] = Outcome{Retry: Soon}
			continue
		}
		if d.Again {
			outcomes[i] = Outcome{Retry: Later}
			continue
		}
		if d.Confirmed {
			t.confirm.put(t.object.UID, t.items[i].Key.Key, t.items[i].Fence)
		}
		t.report(t.items[i], d)
	}
	return outcomes
}

// restored tells whether an item has brought a value that this process had said
// it was not permitted to write. While the permission lacked, only Events could
// be written, so the status knows nothing of it.
func (t *task) restored(item judge.Item, d judge.Decision) bool {
	good := item.Result.GetContent() != nil || item.Result.GetUnmodified() != nil
	return good && d.Verdict == judge.Written && len(d.Events) == 0 && t.speaker.told(t.object.UID, judge.Denial(item))
}

// say says events about an item. An Event that may not be written is given up:
// the value is more important than the news of it, and the log has it.
func (t *task) say(ctx context.Context, item judge.Item, uid types.UID, events []judge.Event) spoken {
	result, err := t.speaker.say(ctx, t.ref, uid, events)
	switch classify(err) {
	case none:
		return result
	case forbidden, rejected:
		if t.speaker.mute() {
			t.about(item, zerolog.ErrorLevel, "mute").Err(err).Msg("Events are refused; grant create of events.events.k8s.io to the writer's service account")
		}
		return said
	default:
		t.Gate.Fault(err, retryAfter(err))
		t.about(item, zerolog.DebugLevel, "unsaid").Err(err).Msg("Event was not written; trying again")
		return unsaid
	}
}
