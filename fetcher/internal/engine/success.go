package engine

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// headroom is the room for the headers of a result, in bytes.
const headroom = 1 << 10

// keepInSync sets the timer of a want whose key already has its body.
func (e *Engine) keepInSync(ctx context.Context, t *trigger) ending {
	if t.want.GetRefresh().AsDuration() <= 0 {
		return ending{outcome: inSync}
	}
	t.past.Cached = t.want.GetCached()
	if err := e.schedule(ctx, t, t.past.GetCached()); err != nil {
		return afterPublishError(err)
	}
	return ending{outcome: inSync}
}

// succeeded publishes the outcome of a good response.
func (e *Engine) succeeded(ctx context.Context, t *trigger, r get.Response) ending {
	r, wait, rejected := e.pass(ctx, t, r)
	switch {
	case wait > 0:
		return e.park(ctx, t, throttle.NamespaceShare, wait)
	case rejected != nil:
		return e.failed(ctx, t, *rejected)
	}
	body := e.bodyAfter(t, r)
	if sum := t.want.GetSha256(); sum != "" && sum != body.GetSha256() {
		return e.failed(ctx, t, mismatched(body.GetSha256()))
	}
	ended := ending{outcome: content}
	var result *v1.Result
	switch {
	case body.GetSha256() != t.past.GetCached().GetSha256():
		result = e.content(t, r)
	case t.reported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED:
		ended.outcome = recovered
		result = e.complete(t,
			&v1.Result{Outcome: &v1.Result_Unmodified{Unmodified: &v1.Unmodified{Sha256: body.GetSha256()}}})
	default:
		ended.outcome = unmodified
	}
	if result != nil && !e.fit(result) {
		return e.failed(ctx, t, tooLarge())
	}
	err := t.inOrder(
		func() error { return e.schedule(ctx, t, body) },
		func() error {
			if result == nil {
				return nil
			}
			e.resultBytes.Spend(t.key.Namespace, int64(len(result.GetContent().GetBody())))
			return e.publishResult(ctx, result)
		})
	switch {
	case errors.Is(err, pipeline.ErrTooLarge):
		return e.failed(ctx, t, tooLarge())
	case err != nil:
		return afterPublishError(err)
	}
	return ended
}

// schedule sets the timer of the next regular fetch. Without refresh it only checks that the want was
// not replaced, or cancels the claim. The error for a replaced want wraps pipeline.ErrSuperseded.
func (e *Engine) schedule(ctx context.Context, t *trigger, body *v1.Cached) error {
	interval := t.want.GetRefresh().AsDuration()
	switch {
	case interval <= 0 && t.claimed:
		return e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) error {
			return e.deps.Client.CancelTimer(ctx, t.key, t.wantSequence)
		})
	case interval <= 0:
		return e.current(ctx, t)
	}
	now := e.deps.Clock.Now()
	due := t.due(v1.Cause_CAUSE_REFRESH)
	due.Attempts, due.FirstFailedAt, due.ReportedAt, due.ReplayOf, due.GaveUp = 0, nil, nil, 0, false
	at := e.cfg.Refresh.Next(now, t.want.GetUrl(), interval)
	if t.gotResponse {
		at = e.cfg.Refresh.After(now, t.want.GetUrl(), interval)
		due.FreshUntil = timestamppb.New(at)
	}
	// Otherwise the writer may drop the result, so the refresh must publish it again.
	if !t.overtaken(now) {
		due.Cached, due.Reported, due.Withheld, due.StatusCode = body, v1.FailureClass_FAILURE_CLASS_UNSPECIFIED, false, 0
		due.Detail = v1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED
	}
	_, err := e.setTimer(newTrace(ctx), due, at)
	return err
}

func (e *Engine) content(t *trigger, r get.Response) *v1.Result {
	return e.complete(t, &v1.Result{Outcome: &v1.Result_Content{Content: &v1.Content{
		Body: r.Body, Sha256: r.SHA256, Rules: rule.Of(t.want).Digest(),
	}}})
}

// complete sets the fields that all results have.
func (e *Engine) complete(t *trigger, r *v1.Result) *v1.Result {
	if t.readFirst {
		t.want.Status, t.want.ReadFirst = "", true
	}
	r.Want, r.Sequence, r.Cause = t.want, t.sequence, t.cause
	r.ObservedAt, r.Answered = timestamppb.New(e.deps.Clock.Now()), t.past.GetCached() != nil
	return r
}

// fit reports whether the broker accepts a result. A large body replaces the status annotation,
// which only saves the writer a read.
func (e *Engine) fit(r *v1.Result) bool {
	limit := int(e.deps.Client.JetStream().Conn().MaxPayload()) - headroom
	if proto.Size(r) > limit && r.GetWant().GetStatus() != "" {
		r.Want = proto.CloneOf(r.GetWant())
		r.Want.Status, r.Want.ReadFirst = "", true
	}
	return proto.Size(r) <= limit
}

func tooLarge() failure {
	return failureOf(&get.Error{
		Class: v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, Detail: v1.FailureDetail_FAILURE_DETAIL_MESSAGE_LIMIT,
	})
}

func mismatched(sha256 string) failure {
	return failureOf(&get.Error{Class: v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH, SHA256: sha256})
}
