package engine

import (
	"context"
	"errors"

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
	got, coalesced, err := e.flights.Do(shared, func() flight.Outcome[fetched] { return e.fly(ctx, t, r) })
	if coalesced && err == nil && got.busy == nil {
		e.deps.Metrics.coalesced.Inc()
		tracing.LinkTo(t.span, got.by, tracing.ToGET)
	}
	return got, err
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
