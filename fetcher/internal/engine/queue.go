package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// claimFor is how long a claimed key is left to the fetcher that makes its GET.
const claimFor = pipeline.AckWait

// wait lets a key without a slot wait in the queue of its host, or for the end of a shared GET. Its
// timer is a lease, after which the broker delivers it again, perhaps to another fetcher. A key
// whose lease has ended without its turn gets another one.
func (e *Engine) wait(ctx context.Context, t *trigger, why fetched) ending {
	now, since := e.deps.Clock.Now(), t.past.GetWaitingSince()
	lease := throttle.Lease(since == nil, e.deps.Random())
	rests := why.busy.Pause > lease
	if rests { // longer than a queue would be left alone
		lease = why.busy.Pause + lease/10
	}
	if since == nil {
		since = timestamppb.New(now)
	}
	due := t.due(v1.Cause_CAUSE_PARKED)
	due.WaitingSince, due.Unended, due.WaitsFor = since, t.past.GetUnended(), t.past.GetWaitsFor()
	ended := ending{outcome: waits, wait: lease}
	if why.busy.Cause != "" {
		ended.outcome, due.WaitsFor = parked, waitsFor[why.busy.Cause]
	}
	timer, err := e.setTimer(t.sameTrace(ctx), due, now.Add(lease))
	if err != nil {
		return afterPublishError(err)
	}
	if ended.outcome == parked {
		e.deps.Metrics.parked.WithLabelValues(string(why.busy.Cause)).Inc()
	}
	data, err := proto.Marshal(due)
	if err != nil || rests {
		return ended
	}
	w := waiting{key: t.key, due: data, timer: timer, since: since.AsTime(), trace: pipeline.Traceparent(t.origin)}
	waiter := &throttle.Waiter{
		Key: t.key, Host: authority(t.want.GetUrl()), Want: t.wantSequence, Rank: t.rank(), Since: since.AsTime(),
		Until: time.Now().Add(lease), Bytes: len(data),
		Start: func(slot *throttle.Slot) { e.start(w, slot) }, //nolint:contextcheck // it starts later
	}
	enqueue := func() { e.deps.Throttle.Enqueue(waiter) }
	if why.busy.Cause == sharedCallSlow {
		e.shared.After(why.request, enqueue)
	} else {
		enqueue()
	}
	return ended
}

// rank is the importance of a key among those of its namespace.
func (t *trigger) rank() throttle.Rank {
	switch {
	case t.urgent():
		return throttle.Urgent
	case t.past.GetAttempts() > 0 || !t.failing() && t.past.GetCached() == nil:
		return throttle.Wanted
	}
	return throttle.Refresh
}

// start handles a key whose turn has come, if it can be claimed: its timer is set in place of its
// lease. That fails when another fetcher has the key, or when it was edited or replayed. If this
// process ends, the timer brings the key back.
func (e *Engine) start(w waiting, slot *throttle.Slot) {
	t := &trigger{
		kind: pipeline.KindDue, key: w.key, storedAt: w.since, deliveries: 1,
		claimed: true, slot: slot, began: e.deps.Clock.Now(),
	}
	due, err := pipeline.DecodeDue(w.key, w.due)
	if err == nil {
		t.take(due)
		claim := proto.CloneOf(due)
		claim.Unended++
		ctx := pipeline.ContextWithTrace(context.Background(), w.Headers())
		err = e.untilTaken(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
			t.sequence, err = e.deps.Client.ReplaceTimer(ctx, claim, e.deps.Clock.Now().Add(claimFor), w.timer)
			return err
		})
	}
	if err != nil {
		e.deps.Metrics.claims.WithLabelValues(lost).Inc()
		return
	}
	e.deps.Metrics.claims.WithLabelValues(won).Inc()
	e.run(context.Background(), t, w, e.handleClaimed)
}

// handleClaimed follows a claimed key as far as it goes. A panic must not end the
// process. Nothing else would count it.
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

// waiting is a key with a lease, as package tracing sees a message.
type waiting struct {
	key pipeline.Key
	// due is the payload of the lease, and timer its sequence.
	due   []byte
	timer uint64
	since time.Time
	trace string
}

// Subject implements tracing.Message.
func (w waiting) Subject() string { return w.key.Due() }

// Data implements tracing.Message.
func (w waiting) Data() []byte { return w.due }

// Headers implements tracing.Message.
func (w waiting) Headers() nats.Header { return nats.Header{"traceparent": []string{w.trace}} }

// Metadata implements tracing.Message.
func (w waiting) Metadata() (*jetstream.MsgMetadata, error) { return nil, pipeline.ErrNoMessage }
