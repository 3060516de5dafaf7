package keystate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Object is what the metadata of an object shows about a key.
type Object struct {
	UID   types.UID
	Entry status.Entry
	Owner annotation.Ownership
	// Other is the annotation of another installation that asked for the key (empty: none).
	Other string
}

// Value is what an object shows about the value of a key, whether or not later attempts fail.
type Value int

const (
	// Missing: the key lacks the requested body.
	Missing Value = iota
	// Held: the key has the requested body, and nobody else has written it since.
	Held
	// Drifted: the key had the requested body, and was removed or changed since.
	Drifted
	// Foreign: the key belongs to somebody else, or to another installation.
	Foreign
	// Copied: the status was written on another object, as after a restore. Only the value shows whether it is ours.
	Copied
)

// Value returns what the object shows about the value of a key.
func (o Object) Value(a Asked) Value {
	e := o.Entry
	matches := e.URL == a.URL && (a.SHA256 == "" || a.SHA256 == e.SHA256) && e.Rules == a.Rules
	switch {
	case o.Other != "", !e.Written() && o.Owner.State == annotation.Foreign:
		return Foreign
	case e.Copied(o.UID):
		return Copied
	case !e.Written() || !matches:
		return Missing
	case o.Owner.State != annotation.Ours && o.Owner.Fingerprint != e.Drift:
		return Drifted
	}
	return Held
}

// condition returns the state of a key according to its object alone.
func (o Object) condition(a Asked, now time.Time) Condition {
	if a.Ignored != "" {
		return Condition{State: Ignored, Message: a.Ignored}
	}
	if a.Invalid != "" {
		return Condition{
			State: Failing, Reason: pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION), Message: a.Invalid,
		}
	}
	e, value := o.Entry, o.Value(a)
	if e.Copied(o.UID) {
		e = status.Entry{}
	}
	exists := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS)
	switch {
	case value == Foreign && (o.Other != "" || e.Error != exists):
		c := Condition{State: Refused, Reason: exists, Message: condition.KeyExists(a.Key)}
		if o.Other != "" {
			c.Message = condition.KeyOfOther(a.Key, o.Other)
		}
		return c
	case e.Failing() && e.FailingURL() == a.URL:
		why := e.Why()
		c := Condition{
			State: Failing, Reason: e.Error, Message: why.Message, Status: why.HTTPStatus, Since: e.Since, Next: why.NextTry,
			Attempts: e.Attempts, Stale: condition.FailsForLong(e.Since, a.Refresh, now),
		}
		if e.Refused() {
			c.State = Refused
		}
		return c
	case e.Written() && o.Owner.State == annotation.Foreign && o.Owner.Fingerprint != e.Drift:
		return Condition{
			State: Contested, Reason: pipeline.ReasonContested, Message: condition.Contested(a.Key, o.Owner.Manager()),
		}
	case value != Drifted && e.Available != "" && a.SHA256 != "" && a.SHA256 != e.Available:
		return Condition{
			State: HeldBack, Reason: pipeline.ReasonUpdateAvailable, Message: condition.UpdateAvailable(a.URL, e.Available),
		}
	case value == Held:
		return Condition{State: OK}
	case value == Drifted:
		return Condition{State: Pending, Reason: pipeline.ReasonDrifted}
	}
	return Condition{State: Pending, Reason: NotWritten}
}
