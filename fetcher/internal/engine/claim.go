package engine

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

const (
	// claimFor is the time after which a claimed key is delivered again.
	claimFor = pipeline.AckWait
	// giveBackTimeout is the time limit of the only attempt to return a claimed key.
	giveBackTimeout = 2 * time.Second
)

// lease is the timer of a queued key.
type lease struct {
	key pipeline.Key
	// due is the payload of the timer, and timer its sequence.
	due   []byte
	timer uint64
	since time.Time
	// span is the one in which the key was queued, if there is a trace.
	span trace.SpanContext
}

// claim is the timer of a claimed key, which fires at until. A renewed claim has a new sequence. The trigger keeps the
// first one, which is the fence of the result.
type claim struct {
	due   *v1.Due
	timer uint64
	until time.Time
	// asked is the time at which the last requested timer fires. A retry requests the same one, so that it finds its
	// own timer if only the response was lost.
	asked time.Time
}

// enqueue queues a key whose timer is a lease.
func (e *Engine) enqueue(ctx context.Context, a *attempt, d decision, timer uint64) {
	data, err := proto.Marshal(d.timer)
	if err != nil {
		return // its lease brings it back
	}
	l := lease{
		key: a.key, due: data, timer: timer, since: d.timer.GetWaitingSince().AsTime(),
		span: trace.SpanContextFromContext(ctx),
	}
	k := &throttle.QueuedKey{
		Key: a.key, Host: authority(a.want.GetUrl()), Want: a.wantSequence, Rank: a.rank(), Since: l.since,
		Until: time.Now().Add(d.wait), Bytes: len(data),
		Start: func(ticket *throttle.Ticket) { e.start(l, ticket) }, //nolint:contextcheck // it starts later
	}
	if d.parking.For == v1.WaitsFor_WAITS_FOR_SHARED_GET {
		e.deps.Throttle.Hold(k)
		key := a.key // so that the call does not keep the payload in memory
		e.shared.After(d.parking.shared, func() { e.deps.Throttle.Unhold(key) })
	} else {
		e.deps.Throttle.Enqueue(k)
	}
}

// start claims a queued key and handles it. The claim is a timer in place of the lease, which brings the key back if
// this process ends. It fails if another fetcher has the key, or if the key was edited or replayed.
func (e *Engine) start(l lease, ticket *throttle.Ticket) {
	t := trigger{
		kind: pipeline.KindDue, key: l.key, storedAt: l.since, began: e.deps.Clock.Now(), deliveries: 1,
	}
	err := t.decodeDue(l.due)
	c := &claim{due: proto.CloneOf(t.due), timer: l.timer}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), l.span)
	if err == nil {
		c.due.Unended++
		err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) error { return e.extend(ctx, c) })
		t.sequence = c.timer
	}
	if err != nil {
		e.deps.Metrics.claims.WithLabelValues(claimLost).Inc()
		return
	}
	e.deps.Metrics.claims.WithLabelValues(claimWon).Inc()
	a := &attempt{trigger: t, ticket: ticket, claim: c}
	ctx, a.span = e.deps.Tracer.Consume(ctx, "fetch", pipeline.FetcherConsumer,
		tracing.Message{Kind: pipeline.KindDue, Key: l.key, Size: len(l.due)})
	e.run(ctx, a)
}

// extend replaces the timer of a claim by one that fires later.
func (e *Engine) extend(ctx context.Context, c *claim) error {
	if now := e.deps.Clock.Now(); c.asked.Sub(now) <= claimFor*2/3 {
		c.asked = now.Add(claimFor)
	}
	timer, err := e.deps.Client.ReplaceTimer(ctx, c.due, c.asked, c.timer)
	if err == nil {
		c.timer, c.until = timer, c.asked
	}
	return err
}

// renew extends the claim of an attempt, if it has one, after a third of its time. Otherwise a key whose result finds
// no room would be claimed and fetched again every 30 s, and five unfinished claims are poison. It only returns
// ErrSuperseded: another fetcher has the key, or the want was replaced.
func (e *Engine) renew(ctx context.Context, a *attempt) error {
	if a.claim == nil || a.claim.until.Sub(e.deps.Clock.Now()) > claimFor*2/3 {
		return nil
	}
	if err := e.extend(ctx, a.claim); errors.Is(err, pipeline.ErrSuperseded) {
		return err
	}
	return nil
}

// giveBack returns a claimed key to the broker, which delivers it again after a pause. Otherwise five drains while its
// result finds no room would be poison. If it fails, the claim brings the key back.
func (e *Engine) giveBack(ctx context.Context, c claim, pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	c.due.Unended--
	_, _ = e.deps.Client.ReplaceTimer(ctx, c.due, e.deps.Clock.Now().Add(pause), c.timer)
}
