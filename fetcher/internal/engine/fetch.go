package engine

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// fetched is the outcome of a GET: no slot, a failure or a response.
type fetched struct {
	busy *throttle.Busy
	// request is that of the shared GET that takes too long.
	request  get.Request
	err      error
	response get.Response
	// by is the span of the trigger that made the GET.
	by trace.SpanContext
}

// fetch makes the GET of a trigger or shares one with others.
func (e *Engine) fetch(ctx context.Context, t *trigger) fetched {
	r := e.deps.Getter.Resolve(get.Request{
		URL: t.want.GetUrl(), Namespace: t.key.Namespace,
		Validators: validators(t.past.GetCached(), e.deps.Clock.Now()),
	})
	r.Untrusted = r.MayCarry() && e.deps.Signatures != nil && e.deps.Signatures.Verify(t.want) != nil
	get := func() sharedcall.Outcome[fetched] { return e.get(ctx, t, r) }
	got, shared, err := e.shared.Do(r, t.notBefore(), get)
	if shared && got.busy != nil { // the namespace that made the call got no slot
		got, shared = get().Value, false
	}
	if shared && err == nil && e.hasOtherDigest(t, got) { // the server may have the required body by now
		got, shared, err = e.shared.Do(r, t.storedAt, get)
	}
	switch {
	case err != nil:
		return fetched{busy: &throttle.Busy{Cause: sharedCallSlow}, request: r}
	case shared && got.busy == nil:
		e.deps.Metrics.coalesced.Inc()
		tracing.LinkTo(t.span, got.by, tracing.SharedGET)
	}
	return got
}

// notBefore is the earliest start of a shared GET for a trigger. A fetch on demand needs a GET that
// started later, and so does a want for a body that Kubernetes has lost. All others may share a GET
// that is a second old. Both times are by the broker's clock.
func (t *trigger) notBefore() time.Time {
	switch {
	case t.urgent(), t.cause == v1.Cause_CAUSE_AUDIT, t.cause == v1.Cause_CAUSE_DRIFT:
		return t.storedAt
	default:
		return time.Time{}
	}
}

// urgent reports whether a person requested a fetch that was not attempted yet.
func (t *trigger) urgent() bool {
	switch {
	case t.past.GetAttempts() > 0:
		return false
	case t.cause == v1.Cause_CAUSE_NOW, t.cause == v1.Cause_CAUSE_REPLAY:
		return true
	}
	return t.cause == v1.Cause_CAUSE_PARKED &&
		(t.want.GetCause() == v1.Cause_CAUSE_NOW && t.untried() || t.past.GetReplayOf() > 0)
}

// tooManyPause is the pause after a 429 without Retry-After.
const tooManyPause = time.Second

// observeLoad pauses a host that requests it, for a short time, and ends the pause after a good
// response. After a redirect to another host, the request affects only the URL.
func observeLoad(slot *throttle.Slot, err error) {
	failed, ok := errors.AsType[*get.Error](err)
	switch {
	case err == nil:
		slot.Resume()
	case !ok || failed.Redirected:
	case failed.StatusCode == http.StatusTooManyRequests:
		slot.Pause(max(failed.RetryAfter, tooManyPause))
	case failed.RetryAfter == 0:
	case failed.StatusCode == http.StatusServiceUnavailable, failed.StatusCode == http.StatusForbidden:
		slot.Pause(failed.RetryAfter)
	}
}

// hasOtherDigest reports whether a response lacks the required digest.
func (e *Engine) hasOtherDigest(t *trigger, got fetched) bool {
	sum := t.want.GetSha256()
	return sum != "" && got.busy == nil && got.err == nil &&
		e.bodyAfter(t, got.response).GetSha256() != sum
}

// get makes a GET if the throttle has a slot.
func (e *Engine) get(ctx context.Context, t *trigger, r get.Request) sharedcall.Outcome[fetched] {
	slot, busy := e.deps.Throttle.Acquire(throttle.Request{
		Host: authority(r.URL), Namespace: t.key.Namespace, Slot: t.slot, Backlog: t.backlog, Urgent: t.urgent(),
	})
	if busy != nil {
		return sharedcall.Outcome[fetched]{Value: fetched{busy: busy}}
	}
	defer slot.Release()
	t.slot = slot
	decoding := get.WithDecoding(withPhases(ctx, t.span), func(took time.Duration) {
		e.decoding.Spend(t.key.Namespace, int64(took))
	})
	response, err := e.deps.Getter.Do(decoding, r)
	observeLoad(slot, err)
	e.deps.Metrics.observeGet(response, err)
	if err == nil {
		setSpanResponse(t.span, response)
	}
	return sharedcall.Outcome[fetched]{
		Value: fetched{response: response, err: err, by: t.span.SpanContext()},
		Size:  int64(len(response.Body)),
		Reuse: true,
	}
}

// failure is the failure of a key.
type failure struct {
	get.Error
	// text is a sentence for the log.
	text string
	// rule is the number of the rule that the body does not meet, from 1.
	rule uint32
	// cause is the reason why the message cannot be handled, if there is one.
	cause error
}

// failureOf returns the failure of a GET.
func failureOf(err error) failure {
	if f, ok := errors.AsType[*get.Error](err); ok {
		return failure{Error: *f, text: f.Error()}
	}
	// Only its own deadline ends the context of a GET.
	return failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT}, text: "GET was stopped before it was done",
	}
}

// poisoned is the failure of a key whose messages were started too often but never finished.
func poisoned() failure {
	return failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_POISON},
		text:  "message was delivered again and again without being finished",
	}
}
