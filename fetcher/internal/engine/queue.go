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

// claimFor is the time after which a claimed key is delivered again.
const claimFor = pipeline.AckWait

// wait lets a key without a slot wait in the queue of its host, or for the end of a shared GET. Its
// timer is a lease, after which the broker delivers it again, perhaps to another fetcher. A key
// whose lease ends before its turn gets another one.
func (e *Engine) wait(ctx context.Context, t *trigger, why fetched) ending {
	now, since := e.deps.Clock.Now(), t.past.GetWaitingSince()
	lease := throttle.Lease(since == nil, e.deps.Random())
	long := why.busy.Pause > lease
	if long { // the key is not queued
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
	if err != nil || long {
		return ended
	}
	w := queuedKey{key: t.key, due: data, timer: timer, since: since.AsTime(), trace: pipeline.Traceparent(t.origin)}
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

// rank returns the priority of a key within its namespace.
func (t *trigger) rank() throttle.Rank {
	switch {
	case t.urgent():
		return throttle.Urgent
	case t.past.GetAttempts() > 0 || !t.failing() && t.past.GetCached() == nil:
		return throttle.Wanted
	}
	return throttle.Refresh
}

// start claims a queued key and handles it. The claim is a timer in place of the lease, which brings
// the key back if this process ends. It fails if another fetcher has the key, or if the key was
// edited or replayed.
func (e *Engine) start(w queuedKey, slot *throttle.Slot) {
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
		err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
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

// handleClaimed fetches a claimed key. Unlike for a delivered message, nothing else recovers a panic
// or stores a dead letter.
func (e *Engine) handleClaimed(ctx context.Context, t *trigger) (ended ending) {
	defer func() {
		if value := recover(); value != nil {
			e.deps.Log.Error().Str("panic", fmt.Sprint(value)).Bytes("stack", debug.Stack()).
				Msg("handling of a queued key panicked")
			ended = e.giveUp(ctx, t, poisoned())
		}
	}()
	ended = e.fetchAndPublish(ctx, t)
	if ended.outcome == malformed {
		ended = e.giveUp(ctx, t, ended.failure)
	}
	return ended
}

// inOrder sets the timer of a key and publishes its outcome. For a delivered message the timer comes
// first, because it fails if the want was replaced. If the process ends after it, the message is
// delivered again. For a claimed key the timer comes last, because only the claim, which the timer
// replaces, brings the key back.
func (t *trigger) inOrder(setTimer, publish func() error) error {
	if t.claimed {
		setTimer, publish = publish, setTimer
	}
	if err := setTimer(); err != nil {
		return err
	}
	return publish()
}

// queuedKey is a key with a lease. It is a tracing.Message.
type queuedKey struct {
	key pipeline.Key
	// due is the payload of the lease, and timer its sequence.
	due   []byte
	timer uint64
	since time.Time
	trace string
}

// Subject implements tracing.Message.
func (w queuedKey) Subject() string { return w.key.Due() }

// Data implements tracing.Message.
func (w queuedKey) Data() []byte { return w.due }

// Headers implements tracing.Message.
func (w queuedKey) Headers() nats.Header { return nats.Header{"traceparent": []string{w.trace}} }

// Metadata implements tracing.Message.
func (w queuedKey) Metadata() (*jetstream.MsgMetadata, error) { return nil, pipeline.ErrNoMessage }
