package engine

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/admission"
	"github.com/kv8s/curl-me-that/fetcher/internal/flight"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
)

// request is what a GET can be shared by.
type request struct {
	key                get.Key
	etag, lastModified string
}

// fetched is what a GET came to: it was not admitted, or it failed, or there
// is an answer.
type fetched struct {
	busy     *admission.Busy
	err      error
	response get.Response
	// by is the span of the trigger that the GET was made for.
	by trace.SpanContext
}

// fetch makes the GET of a trigger, or shares one with others. The error is
// flight.ErrSlow.
func (e *Engine) fetch(ctx context.Context, t *trigger) (fetched, error) {
	r := get.Request{
		URL:          t.want.GetUrl(),
		Namespace:    t.key.Namespace,
		ETag:         t.kept.GetEtag(),
		LastModified: t.kept.GetLastModified(),
	}
	shared := request{key: e.deps.Getter.Key(r), etag: r.ETag, lastModified: r.LastModified}
	fly := func() flight.Outcome[fetched] { return e.fly(ctx, t, r) }
	got, coalesced, err := e.flights.Do(shared, t.notBefore(), fly)
	if coalesced && err == nil && t.unlike(got) { // the digest may be that of a body that came since
		got, coalesced, err = e.flights.Do(shared, t.stored, fly)
	}
	if coalesced && err == nil && got.busy == nil {
		e.deps.Metrics.coalesced.Inc()
		tracing.LinkTo(t.span, got.by, tracing.ToGET)
	}
	return got, err
}

// notBefore is when the GET that answers a trigger may have begun at the
// earliest. Who asks for a fetch now has seen the world after that; everybody
// else may have what is a second old. The time is that of the broker's clock:
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

// unlike tells whether an answer is not the body whose digest is demanded.
func (t *trigger) unlike(got fetched) bool {
	sum := t.want.GetSha256()
	return sum != "" && got.busy == nil && got.err == nil && settledBy(got.response, t.kept).GetSha256() != sum
}

// fly makes a GET if it is admitted.
func (e *Engine) fly(ctx context.Context, t *trigger, r get.Request) flight.Outcome[fetched] {
	release, busy := e.deps.Limiter.Acquire(authority(r.URL), t.key.Namespace, t.backlog)
	if busy != nil {
		return flight.Outcome[fetched]{Value: fetched{busy: busy}}
	}
	defer release()
	response, err := e.deps.Getter.Do(withPhases(ctx, t.span), r)
	e.deps.Metrics.got(response, err)
	if err == nil {
		answered(t.span, response)
	}
	return flight.Outcome[fetched]{
		Value: fetched{response: response, err: err, by: t.span.SpanContext()},
		Size:  int64(len(response.Body)),
		Keep:  true,
	}
}

// failure is what went wrong with a key.
type failure struct {
	get.Error
	// said is one sentence for the log.
	said string
}

// failureOf returns what went wrong with a GET.
func failureOf(err error) failure {
	if f, ok := errors.AsType[*get.Error](err); ok {
		return failure{Error: *f, said: f.Error()}
	}
	// The context of a GET ends by its own deadline only.
	return failure{Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT}, said: "GET was stopped before it was done"}
}

// poisoned is the failure of a trigger that was delivered too often.
func poisoned() failure {
	return failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_POISON},
		said:  "message was delivered again and again without being finished",
	}
}
