package engine

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
)

// request is what a GET can be shared by.
type request struct {
	key                get.Key
	etag, lastModified string
}

// fetched is what a GET came to: there was no slot, or it failed, or there
// is an answer.
type fetched struct {
	busy     *throttle.Busy
	err      error
	response get.Response
	// by is the span of the trigger that the GET was made for.
	by trace.SpanContext
}

// fetch makes the GET of a trigger, or shares one with others. The error is
// sharedcall.ErrSlow.
func (e *Engine) fetch(ctx context.Context, t *trigger) (fetched, error) {
	r := get.Request{
		URL:          t.want.GetUrl(),
		Namespace:    t.key.Namespace,
		ETag:         t.cached.GetEtag(),
		LastModified: t.cached.GetLastModified(),
	}
	shared := request{key: e.deps.Getter.Key(r), etag: r.ETag, lastModified: r.LastModified}
	get := func() sharedcall.Outcome[fetched] { return e.get(ctx, t, r) }
	got, coalesced, err := e.shared.Do(shared, t.notBefore(), get)
	if coalesced && err == nil && t.hasOtherDigest(got) { // the digest may be that of a body that came since
		got, coalesced, err = e.shared.Do(shared, t.stored, get)
	}
	if coalesced && err == nil && got.busy == nil {
		e.deps.Metrics.coalesced.Inc()
		tracing.LinkTo(t.span, got.by, tracing.ToGET)
	}
	return got, err
}

// notBefore is when the GET that answers a trigger may have begun at the
// earliest. A demand for a fetch now is only met by a GET that began after it;
// all else may share what is a second old. The time is that of the broker's clock:
// one that is ahead costs a GET, one that is behind lets less than that second
// through.
func (t *trigger) notBefore() time.Time {
	switch cause := t.cause; {
	case cause == v1.Cause_CAUSE_NOW, cause == v1.Cause_CAUSE_REPLAY,
		cause == v1.Cause_CAUSE_PARKED && t.want.GetCause() == v1.Cause_CAUSE_NOW:
		return t.stored
	default:
		return time.Time{}
	}
}

// unlike reports whether an answer is not the body whose digest is demanded.
func (t *trigger) hasOtherDigest(got fetched) bool {
	sum := t.want.GetSha256()
	return sum != "" && got.busy == nil && got.err == nil && cachedBodyAfter(got.response, t.cached).GetSha256() != sum
}

// get makes a GET if the throttle permits it now.
func (e *Engine) get(ctx context.Context, t *trigger, r get.Request) sharedcall.Outcome[fetched] {
	release, busy := e.deps.Throttle.Acquire(authority(r.URL), t.key.Namespace, t.backlog)
	if busy != nil {
		return sharedcall.Outcome[fetched]{Value: fetched{busy: busy}}
	}
	defer release()
	response, err := e.deps.Getter.Do(withPhases(ctx, t.span), r)
	e.deps.Metrics.observeGet(response, err)
	if err == nil {
		setSpanResponse(t.span, response)
	}
	return sharedcall.Outcome[fetched]{
		Value: fetched{response: response, err: err, by: t.span.SpanContext()},
		Size:  int64(len(response.Body)),
		Keep:  true,
	}
}

// failure is what went wrong with a key.
type failure struct {
	get.Error
	// text is one sentence for the log.
	text string
}

// failureOf returns what went wrong with a GET.
func failureOf(err error) failure {
	if f, ok := errors.AsType[*get.Error](err); ok {
		return failure{Error: *f, text: f.Error()}
	}
	// The context of a GET ends by its own deadline only.
	return failure{Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT}, text: "GET was stopped before it was done"}
}

// poisoned is the failure of a trigger that was delivered too often.
func poisoned() failure {
	return failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_POISON},
		text:  "message was delivered again and again without being finished",
	}
}
