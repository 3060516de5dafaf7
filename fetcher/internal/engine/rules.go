package engine

import (
	"context"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// evaluations is the budget of evaluation time of one namespace, and refill the time in which it
// refills. Only one evaluation runs at a time, so the rules of one namespace could delay all others.
const evaluations, refill = time.Second / 2, 5 * time.Second

// evaluationsShort returns the shortage of a namespace that has no time left for the rules of a want.
func (e *Engine) evaluationsShort(t *trigger) *budget.Shortage {
	if rule.Of(t.want).Empty() {
		return nil
	}
	short := e.rules.Budget.Check(t.key.Namespace)
	if short != nil {
		e.logShortage(t, short, "evaluations",
			"the namespace has used up its time for rules and selections, so keys that have some are fetched later")
	}
	return short
}

// details has the failure details of the causes.
var details = map[rule.Cause]v1.FailureDetail{
	rule.NotJSON:      v1.FailureDetail_FAILURE_DETAIL_NOT_JSON,
	rule.Inapplicable: v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE,
	rule.Costly:       v1.FailureDetail_FAILURE_DETAIL_COSTLY,
}

// pass evaluates the rules and the selection of a want on a new body. It returns the response with the
// selected part of the body, the failure of the first expression that rejects the body, or how long
// to wait for the evaluation.
func (e *Engine) pass(ctx context.Context, t *trigger, r get.Response) (get.Response, time.Duration, *failure) {
	set := rule.Of(t.want)
	if set.Empty() || r.NotModified { // the body of a 304 has passed
		return r, 0, nil
	}
	held := t.want.GetHeldSize()
	if t.past.GetCached() != nil {
		held = t.past.GetCached().GetSize()
	}
	outcome := e.rules.Evaluate(ctx, t.key.Namespace, set, r.Body, held)
	if number, cause := outcome.Failed(); cause != rule.Passed {
		f := &failure{rule: uint32(number), text: "body does not pass curl-expect or curl-select"}
		f.Class, f.Detail = v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, details[cause]
		if cause == rule.TooLarge {
			f.Limit = int64(e.rules.Limit())
		}
		return r, 0, f
	}
	if set.Select != "" {
		r.Body, r.SHA256 = outcome.Selected, pipeline.Digest(outcome.Selected)
	}
	return r, outcome.Wait, nil
}
