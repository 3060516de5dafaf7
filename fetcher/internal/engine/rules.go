package engine

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// pass evaluates the rules and the selection of a want on a new body. It returns the response with
// the selected part of the body, or the failure of the first expression that the body does not pass.
func (e *Engine) pass(t *trigger, r get.Response) (get.Response, *failure) {
	set := rule.Of(t.want)
	if set.Empty() || r.NotModified { // the body of a 304 has passed
		return r, nil
	}
	held := t.want.GetHeldSize()
	if t.cached != nil {
		held = t.cached.GetSize()
	}
	outcome := e.rules.Evaluate(t.key.Namespace, set, r.Body, held)
	if number, cause := outcome.Failed(); cause != rule.Passed {
		return r, e.rejected(number, cause)
	}
	if set.Select != "" {
		digest := sha256.Sum256(outcome.Selected)
		r.Body, r.SHA256 = outcome.Selected, hex.EncodeToString(digest[:])
	}
	return r, nil
}

// rejected returns the failure of an expression.
func (e *Engine) rejected(number int, cause rule.Cause) *failure {
	f := &failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED},
		rule:  uint32(number),
		text:  "body does not pass curl-expect or curl-select",
	}
	switch cause {
	case rule.NotJSON:
		f.Detail = v1.FailureDetail_FAILURE_DETAIL_NOT_JSON
	case rule.Inapplicable:
		f.Detail = v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE
	case rule.Costly:
		f.Detail = v1.FailureDetail_FAILURE_DETAIL_COSTLY
	case rule.TooLarge:
		f.Limit = int64(e.rules.MaxBody())
	case rule.Passed, rule.False:
	}
	return f
}
