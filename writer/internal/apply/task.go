package apply

import (
	"context"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

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
	assumed, ok := judge.Assume(t.items)
	switch {
	case ok && (!found || remembered.UID != assumed.UID || newer(assumed.ResourceVersion, remembered.ResourceVersion)):
		t.object, t.known = assumed, true
	case found:
		again := *remembered
		t.object, t.known = &again, true
	}
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
	plan := t.Judge.Plan(t.object, t.items)
	if plan.NeedLive && !plan.NeedValues {
		if err := t.readMetadata(ctx); err != nil {
			return judge.Plan{}, err
		}
		plan = t.Judge.Plan(t.object, t.items)
	}
	if plan.NeedValues {
		if err := t.readObject(ctx); err != nil {
			return judge.Plan{}, err
		}
		plan = t.Judge.Plan(t.object, t.items)
	}
	return plan, nil
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
	t.Gate.Success()
	item := t.items[0]
	t.line(zerolog.WarnLevel, item).Err(err).Msg("API server refuses the change; trying again")
	if err := t.speaker.say(ctx, t.ref, t.object.UID, []judge.Event{judge.Refusal(t.object, item)}); err != nil {
		t.line(zerolog.WarnLevel, item).Err(err).Msg("Event was not written")
	}
	return all(1, Outcome{Retry: Later}), true
}

// failed deals with a request that the API server did not serve.
func (t *task) failed(ctx context.Context, err error) []Outcome {
	switch classify(err) {
	case forbidden:
		t.Gate.Deny(err)
		for _, item := range t.items {
			// Where even Events are forbidden, the log has to do.
			_ = t.speaker.say(ctx, t.ref, types.UID(item.Result.GetWant().GetUid()), []judge.Event{judge.Denial(item)})
		}
		return all(len(t.items), Outcome{Retry: Soon})
	case away:
		after := retryAfter(err)
		t.Gate.Fault(err, after)
		return all(len(t.items), Outcome{Retry: Soon, After: after})
	default:
		t.line(zerolog.WarnLevel, t.items[0]).Err(err).Msg("object cannot be read; trying again")
		return all(len(t.items), Outcome{Retry: Later})
	}
}

// finish says what there is to say about a plan that has been carried out.
func (t *task) finish(ctx context.Context, plan judge.Plan) []Outcome {
	t.Gate.Success()
	outcomes := make([]Outcome, len(t.items))
	for i, d := range plan.Decisions {
		outcomes[i] = Outcome{Verdict: d.Verdict}
		if d.Again {
			outcomes[i] = Outcome{Retry: Later}
		}
		if err := t.say(ctx, d.Events); err != nil {
			outcomes[i] = Outcome{Retry: Soon}
			t.line(zerolog.WarnLevel, t.items[i]).Err(err).Msg("Event was not written; trying again")
		}
		t.report(t.items[i], d, outcomes[i])
	}
	return outcomes
}

// say says events. One that may not be said is given up: the value is more
// important than the news of it, and the log has it.
func (t *task) say(ctx context.Context, events []judge.Event) error {
	if len(events) == 0 {
		return nil
	}
	err := t.speaker.say(ctx, t.ref, t.object.UID, events)
	if f := classify(err); f == forbidden || f == rejected {
		t.Log.Error().Err(err).Str("namespace", t.ref.Namespace).Str("configmap", t.ref.Name).Msg("Event was refused")
		return nil
	}
	return err
}
