package plan

import (
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// problems brings the status in line with what is wrong with the annotations, and
// with keys that somebody else has written. Both are read in the object, so that no
// message can put a sentence before its owner.
func (b *builder) problems(i Item) Decision {
	o := b.object
	if o.Ignored || o.Request.Suspended {
		return Decision{Verdict: Stale}
	}
	explained, occupied := b.explainAnnotations(i), b.explainOccupied(i)
	if !explained && !occupied {
		return Decision{Verdict: Unchanged}
	}
	b.touched = true
	return Decision{Verdict: Written}
}

// explainAnnotations reports whether what is wrong with the annotations has changed.
func (b *builder) explainAnnotations(i Item) bool {
	text, held := b.object.Problem, b.status.Problem
	switch {
	case text == "" && held == nil, held != nil && held.Message == text:
		return false
	case text == "":
		b.status.Problem = nil
		return true
	}
	since := i.observed()
	if held != nil {
		since = held.Since
	}
	reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
	b.status.Problem = &status.Problem{Error: reason, Message: text, Since: since}
	return true
}

// explainOccupied reports whether a key was found that we never wrote, and whose
// entry does not have that yet. No result comes for such a key, as nothing is
// fetched for it; when it is free, the next result replaces the entry.
func (b *builder) explainOccupied(i Item) (changed bool) {
	for _, pair := range b.object.Request.Pairs {
		entry := b.status.Keys[pair.Key]
		if entry.Written() || b.owner(pair.Key).State != annotation.Foreign {
			continue
		}
		if entry.Copied(b.object.UID) {
			entry = status.Entry{}
		}
		next := failing(entry, pair.URL, pipeline.Reason(keyExists), i.observed())
		next.GaveUp, next.Explanation = true, &status.Explanation{Message: condition.KeyExists(pair.Key)}
		if !sameFailure(entry, next) {
			b.set(pair.Key, next)
			changed = true
		}
	}
	return changed
}
