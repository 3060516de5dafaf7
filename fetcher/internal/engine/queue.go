package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// claimFor is how long a claimed key is left to the fetcher that makes its GET.
const claimFor = pipeline.AckWait

// wait lets a key without a slot wait in the queue of its host. Its timer is a lease,
// after which the broker delivers it again, perhaps to another fetcher. A key whose
// lease has ended without its turn gets another one.
func (e *Engine) wait(ctx context.Context, t *trigger, busy *throttle.Busy) ending {
	now, renewed := e.deps.Clock.Now(), busy.Cause == ""
	lease := throttle.Lease(t.waitingSince.IsZero(), e.deps.Random())
	rests := busy.Pause > lease
	if rests { // longer than a queue would be left alone
		lease = busy.Pause + lease/10
	}
	if t.waitingSince.IsZero() {
		t.waitingSince = now
	}
	due := t.due(v1.Cause_CAUSE_PARKED)
	due.WaitingSince, due.Unended, due.WaitsFor = timestamppb.New(t.waitingSince), t.unended, t.waitsFor
	if !renewed {
		due.WaitsFor = waitsFor(busy.Cause)
	}
	timer, err := e.setTimer(t.sameTrace(ctx), due, now.Add(lease))
	if err != nil {
		return afterPublishError(err)
	}
	if data, err := proto.Marshal(due); err == nil && !rests {
		e.deps.Throttle.Enqueue(&throttle.Waiter{
			Key: t.key, Host: authority(t.want.GetUrl()), Want: t.wantSequence, Timer: timer, Due: data,
			Trace: pipeline.Traceparent(t.origin), Rank: t.rank(), Since: t.waitingSince,
		}, lease)
	}
	if renewed {
		return ending{outcome: waits, wait: lease}
	}
	e.deps.Metrics.parked.WithLabelValues(string(busy.Cause)).Inc()
	return ending{outcome: parked, wait: lease}
}

// rank is the importance of a key among those of its namespace.
func (t *trigger) rank() throttle.Rank {
	switch {
	case t.urgent():
		return throttle.Urgent
	case t.attempts > 0 || t.firstFailed.IsZero() && t.cached == nil:
		return throttle.Wanted
	}
	return throttle.Refresh
}

// start handles a key whose turn has come, if it can be claimed.
func (e *Engine) start(w *throttle.Waiter, slot *throttle.Slot) {
	select {
	case <-e.deps.Draining:
		e.handBack(context.Background(), w)
		return
	default:
	}
	e.deps.Metrics.inFlight.Inc()
	defer e.deps.Metrics.inFlight.Dec()
	t, err := e.claim(context.Background(), w)
	if err != nil {
		e.deps.Metrics.claims.WithLabelValues(lost).Inc()
		if !errors.Is(err, pipeline.ErrSuperseded) {
			e.deps.Metrics.observePushback(err)
			_ = e.pause(publishFirst) // the lease brings it back
		}
		return
	}
	e.deps.Metrics.claims.WithLabelValues(won).Inc()
	t.slot = slot
	ctx := e.begin(context.Background(), t, claimed{w})
	ended := e.handleClaimed(ctx, t)
	e.report(t, ended)
	t.setSpanOutcome(ended)
}

// handBackWorkers is the number of keys that are handed back at a time.
const handBackWorkers = 16

// HandBack ends the leases of keys that still wait, so that other fetchers get them at once. It
// stops when ctx is done; then the leases bring the rest back.
func (e *Engine) HandBack(ctx context.Context, waiters []*throttle.Waiter) {
	var group errgroup.Group
	group.SetLimit(handBackWorkers)
	for _, w := range waiters {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			e.handBack(ctx, w)
			return nil
		})
	}
	_ = group.Wait()
}

// handBack ends the lease of a key. If that fails, the lease ends by itself.
func (e *Engine) handBack(ctx context.Context, w *throttle.Waiter) {
	due, err := pipeline.DecodeDue(w.Key, w.Due)
	if err != nil {
		return
	}
	_ = try(ctx, func(ctx context.Context) error {
		_, err := e.deps.Client.ReplaceTimer(ctx, due, e.deps.Clock.Now(), w.Timer)
		return err
	})
}

// claim sets the timer of a waiting key in place of its lease. That fails when another
// fetcher has the key, or when it was edited or replayed. If this process ends, the
// timer brings the key back.
func (e *Engine) claim(ctx context.Context, w *throttle.Waiter) (*trigger, error) {
	due, err := pipeline.DecodeDue(w.Key, w.Due)
	if err != nil {
		return nil, err
	}
	now := e.deps.Clock.Now()
	t := &trigger{kind: pipeline.KindDue, key: w.Key, storedAt: w.Since, deliveries: 1, claimed: true, began: now}
	t.take(due) //nolint:contextcheck // it reads a trace context; nothing waits
	due.Unended++
	err = try(ctx, func(ctx context.Context) (err error) {
		ctx = pipeline.ContextWithTrace(ctx, claimed{w}.Headers())
		t.sequence, err = e.deps.Client.ReplaceTimer(ctx, due, now.Add(claimFor), w.Timer)
		return err
	})
	return t, err
}

// handleClaimed follows a claimed key as far as it goes. A panic must not end the
// process; nothing else would count it.
func (e *Engine) handleClaimed(ctx context.Context, t *trigger) (ended ending) {
	defer func() {
		if value := recover(); value != nil {
			e.deps.Log.Error().Str("panic", fmt.Sprint(value)).Bytes("stack", debug.Stack()).
				Msg("handling of a waiting key panicked")
			ended = e.giveUp(ctx, t, poisoned())
		}
	}()
	ended = e.fetchAndPublish(ctx, t)
	if ended.outcome == malformed {
		ended = e.giveUp(ctx, t, ended.failure)
	}
	return ended
}

// endClaim takes the claim of a key away for which nothing is to be done later.
func (e *Engine) endClaim(ctx context.Context, t *trigger) error {
	return e.untilTaken(ctx, pipeline.Requests, func(ctx context.Context) error {
		return e.deps.Client.CancelTimer(ctx, t.key, t.wantSequence)
	})
}

// endSlot gives the slot of a delivered message back.
func (t *trigger) endSlot() {
	if t.slot != nil {
		t.slot.End()
	}
}

// inOrder sets the timer of a key and publishes its outcome. For a delivered message
// the timer comes first, which proves that the want is still current; if the process
// ends between the two, the message is delivered again. For a claimed key the timer
// comes last, since the claim is what brings it back.
func (t *trigger) inOrder(setTimer, publish func() error) error {
	if t.claimed {
		setTimer, publish = publish, setTimer
	}
	if err := setTimer(); err != nil {
		return err
	}
	return publish()
}

// claimed is a waiting key as package tracing sees a message.
type claimed struct{ *throttle.Waiter }

// Subject implements tracing.Message.
func (c claimed) Subject() string { return c.Key.Due() }

// Data implements tracing.Message.
func (c claimed) Data() []byte { return c.Due }

// Headers implements tracing.Message.
func (c claimed) Headers() nats.Header {
	if c.Trace == "" {
		return nil
	}
	return nats.Header{"traceparent": []string{c.Trace}}
}

// Metadata implements tracing.Message.
func (c claimed) Metadata() (*jetstream.MsgMetadata, error) { return nil, pipeline.ErrNoMessage }
