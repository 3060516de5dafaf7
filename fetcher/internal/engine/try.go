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
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// attempt is the handling of a trigger.
type attempt struct {
	trigger

	span trace.Span
	// ticket is the throttle's permission. Nil: none yet, or the GET is another trigger's.
	ticket *throttle.Ticket
	// claim is the timer of the key until its outcome is published. Nil: the key was delivered, not claimed.
	claim *claim
}

const (
	// replicaLag is the delay of a trigger whose want a lagging replica does not have yet.
	replicaLag = time.Second
	// maxLookups is the number of failed lookups after which a want counts as purged. Fewer may be due to a
	// lagging replica.
	maxLookups = 3
	// maxUnended is the number of fetchers in a row that may end before they have handled a key.
	maxUnended = 5
)

// try makes an attempt, if it is possible.
func (e *Engine) try(ctx context.Context, a *attempt) attemptEnd {
	switch {
	case a.err != nil:
		return undecodable(a.err)
	case a.tombstone():
		return skipped(outcomeTombstone)
	case a.cause == v1.Cause_CAUSE_PARKED && a.claim == nil && e.deps.Throttle.IsQueued(a.key, a.wantSequence):
		return queuedFor(throttle.Wait{})
	case a.kind == pipeline.KindDue:
		if end, ok := e.confirm(ctx, a); !ok {
			return end
		}
	}
	switch {
	case a.due.GetUnended() >= maxUnended:
		return failed(poisoned())
	case a.kind == pipeline.KindWant && a.want.GetCached() != nil:
		return skipped(outcomeInSync)
	// Deliveries also count messages that a draining fetcher gave back, so crashes are counted in claims: a
	// redelivered message is queued first.
	case a.claim == nil && (a.deliveries > 1 || a.due.GetUnended() > 0):
		return queuedFor(throttle.Wait{})
	}
	if wait := e.overBudget(&a.trigger); wait != nil {
		return parkedFor(*wait)
	}
	end := e.fetch(ctx, a)
	if end.parking == nil {
		e.deps.Metrics.observeRefreshDelay(&a.trigger, e.deps.Clock.Now())
	}
	if end.response == nil {
		return end
	}
	return e.applyRules(ctx, &a.trigger, *end.response)
}

// confirm reads the want of a due. If there is nothing to fetch, it returns why.
func (e *Engine) confirm(ctx context.Context, a *attempt) (end attemptEnd, ok bool) {
	want, sequence, err := e.lastWant(ctx, a.key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage) && a.deliveries < maxLookups, err == nil && sequence < a.wantSequence:
		return postponedFor(replicaLag), false
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrMalformed):
		// A malformed want has its own dead letter.
		return skipped(outcomeSuperseded), false
	case err != nil:
		return postponedFor(0), false
	case sequence > a.wantSequence || want == nil:
		return skipped(outcomeSuperseded), false
	}
	a.replaceWant(want)
	return attemptEnd{}, true
}

// overBudget returns the time until a budget is refilled if the namespace has used up one that the fetch needs.
func (e *Engine) overBudget(t *trigger) *throttle.Wait {
	waitsFor, text := v1.WaitsFor_WAITS_FOR_NAMESPACE_BYTES,
		"the namespace exceeded its budget of bodies, its GETs are delayed"
	short := e.resultBytes.Check(t.key.Namespace)
	if short == nil {
		short = e.processing.Check(t.key.Namespace)
		waitsFor, text = v1.WaitsFor_WAITS_FOR_NAMESPACE_TIME,
			"the namespace has used up its time for compressed bodies, rules and selections, its GETs are delayed"
	}
	if short == nil {
		return nil
	}
	e.logShortage(t, short, pipeline.WaitsForName(waitsFor), text)
	return &throttle.Wait{For: waitsFor, Pause: short.Wait}
}

// fetch makes the GET of an attempt or shares one with others.
func (e *Engine) fetch(ctx context.Context, a *attempt) attemptEnd {
	known := validators(a.due.GetCached(), e.deps.Clock.Now())
	if rule.SetOf(a.want).Timed() {
		known = get.Validators{}
	}
	r := e.deps.Getter.Resolve(get.Request{URL: a.want.GetUrl(), Namespace: a.key.Namespace, Validators: known})
	r.Untrusted = r.MayCarry() && !e.isSigned(a.want)
	call := func() sharedcall.Result[attemptEnd] { return e.get(ctx, a, r) }
	end, shared, err := e.shared.Do(r, a.notBefore(), call)
	if shared && end.parking != nil { // the namespace that made the call got no slot
		end, shared = call().Value, false
	}
	if shared && err == nil && hasOtherDigest(&a.trigger, end) { // the server may have the required body by now
		end, shared, err = e.shared.Do(r, a.storedAt, call)
	}
	switch {
	case err != nil:
		return queuedBehind(r)
	case shared && end.parking == nil:
		e.deps.Metrics.coalesced.Inc()
	}
	return end
}

// isSigned reports whether a want is the watcher's.
func (e *Engine) isSigned(w *v1.Want) bool {
	return e.deps.Signatures == nil || e.deps.Signatures.Verify(w) == nil
}

// hasOtherDigest reports whether a response lacks the required digest.
func hasOtherDigest(t *trigger, end attemptEnd) bool {
	if end.response == nil || t.want.GetSha256() == "" {
		return false
	}
	sum := end.response.SHA256
	if end.response.NotModified {
		sum = t.due.GetCached().GetSha256()
	}
	return sum != t.want.GetSha256()
}

// get makes a GET if the throttle has a slot.
func (e *Engine) get(ctx context.Context, a *attempt, r get.Request) sharedcall.Result[attemptEnd] {
	if wait := e.acquire(a, r.URL); wait != nil {
		return sharedcall.Result[attemptEnd]{Value: queuedFor(*wait)}
	}
	defer a.ticket.Release()
	r.Observer = &get.Observer{
		Phase:   func(p get.Phase, took time.Duration) { e.deps.Metrics.observePhase(a.span, p, took) },
		Decoded: func(took time.Duration) { e.processing.Spend(a.key.Namespace, int64(took)) },
	}
	response, err := e.deps.Getter.Do(ctx, r)
	observeLoad(a.ticket, err)
	end := responded(response)
	if err != nil {
		end = failed(failureOf(err))
	} else {
		setSpanResponse(a.span, response)
	}
	e.deps.Metrics.observeGet(end)
	return sharedcall.Result[attemptEnd]{Value: end, Size: int64(len(response.Body)), Reuse: true}
}

// acquire gets a slot for the GET of a URL, or returns what it has to wait for.
func (e *Engine) acquire(a *attempt, url string) (wait *throttle.Wait) {
	if a.ticket != nil { // the key was started by the throttle
		return a.ticket.Acquire()
	}
	a.ticket, wait = e.deps.Throttle.Acquire(throttle.Request{
		Host: authority(url), Namespace: a.key.Namespace, Backlog: a.backlog, Urgent: a.urgent(),
	})
	return wait
}

// tooManyPause is the pause after a 429 without Retry-After.
const tooManyPause = time.Second

// observeLoad pauses a host that requests it, for a short time, and ends the pause after a good
// response. After a redirect to another host, the request affects only the URL.
func observeLoad(ticket *throttle.Ticket, err error) {
	failed, ok := errors.AsType[*get.Error](err)
	switch {
	case err == nil:
		ticket.Resume()
	case !ok || failed.Redirected:
	case failed.StatusCode == http.StatusTooManyRequests:
		ticket.Pause(max(failed.RetryAfter, tooManyPause))
	case failed.RetryAfter == 0:
	case failed.StatusCode == http.StatusServiceUnavailable, failed.StatusCode == http.StatusForbidden:
		ticket.Pause(failed.RetryAfter)
	}
}

// ruleDetails has the failure details of causes.
var ruleDetails = map[rule.Cause]v1.FailureDetail{
	rule.NotCertificates: failure.NotCertificates,
	rule.BadCertificate:  failure.BadCertificate,
	rule.NotJSON:         failure.NotJSON,
	rule.Inapplicable:    failure.Inapplicable,
	rule.Costly:          failure.Costly,
}

// applyRules evaluates the rules and the selection of a want on a new body. The response has the selected
// part of the body then.
func (e *Engine) applyRules(ctx context.Context, t *trigger, r get.Response) attemptEnd {
	set := rule.SetOf(t.want)
	if set.Empty() || r.NotModified { // the body of a 304 has passed
		return responded(r)
	}
	held := t.want.GetHeldSize()
	if t.due.GetCached() != nil {
		held = t.due.GetCached().GetSize()
	}
	outcome := e.rules.Evaluate(ctx, t.key.Namespace, set, r.Body, held)
	if number, cause := outcome.Failed(); cause != rule.Passed {
		f := &fetchFailure{rule: uint32(number), text: "body does not pass curl-expect or curl-select"}
		f.Class, f.Detail = failure.ContentRejected, ruleDetails[cause]
		if !r.Credential {
			f.Snippet = r.Body[:min(len(r.Body), pipeline.MaxSnippet)]
		}
		if cause == rule.TooLarge {
			f.Limit = rule.MaxBody
		}
		return failed(f)
	}
	if outcome.Wait > 0 {
		return parkedFor(throttle.Wait{For: v1.WaitsFor_WAITS_FOR_NAMESPACE_TIME, Pause: outcome.Wait})
	}
	if set.Select != "" {
		r.Body, r.SHA256 = outcome.Selected, pipeline.Digest(outcome.Selected)
	}
	return responded(r)
}
