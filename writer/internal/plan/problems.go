package plan

import (
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// problems brings the status in line with what is wrong with the annotations. That
// is read in the object, so that no message can put a sentence before its owner.
func (d *draft) problems(i Item) Decision {
	o := d.object
	if o.Ignored || o.Request.Suspended {
		return Decision{Verdict: Stale}
	}
	held := d.status.Problem
	switch {
	case o.Problem == "" && held == nil, held != nil && held.Message == o.Problem:
		return Decision{Verdict: Unchanged}
	case o.Problem == "":
		d.status.Problem = nil
	default:
		since := i.observed()
		if held != nil {
			since = held.Since
		}
		reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
		d.status.Problem = &status.Problem{Error: reason, Message: o.Problem, Since: since}
	}
	d.touched = true
	return Decision{Verdict: Written}
}
