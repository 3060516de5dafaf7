package keystate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// View is what the metadata of an object shows about a key.
type View struct {
	UID   types.UID
	Entry status.Entry
	Owner annotation.Ownership
	// OtherAsker is the annotation of another installation that asked for the key (empty: none).
	OtherAsker string
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
	// Foreign: somebody else or another installation owns the key.
	Foreign
	// Copied: the status was written on another object, as after a restore. Only the value shows whether it is ours.
	Copied
)

// Value returns what the object shows about the value of a key.
func (v View) Value(spec Spec) Value {
	e := v.Entry
	matches := e.URL == spec.URL && e.Available == ""
	if spec.SHA256 != "" {
		matches = (e.URL == spec.URL || e.URL == "") && e.SHA256 == spec.SHA256
	}
	matches = matches && e.Rules == spec.Rules
	switch {
	case v.OtherAsker != "", !e.HasBody() && v.Owner.State == annotation.Foreign:
		return Foreign
	case e.Copied(v.UID):
		return Copied
	case !e.HasBody() || !matches:
		return Missing
	case v.Owner.State != annotation.Ours && v.Owner.Fingerprint != e.CheckedFingerprint:
		return Drifted
	}
	return Held
}

// Holds reports whether the key has the body with that digest, of any URL and rules.
func (v View) Holds(digest string) bool {
	return v.Value(Spec{URL: v.Entry.URL, SHA256: digest, Rules: v.Entry.Rules}) == Held
}

// entry returns the status of the key. An entry of another object says nothing.
func (v View) entry() status.Entry {
	if v.Entry.Copied(v.UID) {
		return status.Entry{}
	}
	return v.Entry
}

// trouble returns the condition of a key that is failing, refused or contested according to its object. Others have no
// State.
func (v View) trouble(spec Spec, now time.Time) (c Condition) {
	e, exists := v.entry(), failure.Reason(failure.KeyExists)
	failing := e.Failing() && e.FailingURL() == spec.URL
	switch {
	case v.OtherAsker != "":
		return Condition{State: Refused, Reason: exists, Message: sentence.KeyOfOther(spec.Key, v.OtherAsker)}
	case v.Value(spec) == Foreign && (!failing || e.Error != exists): // the status does not say so yet
		return Condition{State: Refused, Reason: exists, Message: sentence.KeyExists(spec.Key)}
	case failing:
		why := e.Why()
		c = Condition{
			State: Failing, Reason: e.Error, Message: why.Message, Status: why.HTTPStatus, Since: e.Since, Next: why.NextTry,
			Attempts: e.Attempts, Stale: failure.FailsForLong(e.Since, spec.Refresh, now),
		}
		if e.Refused() {
			c.State = Refused
		}
	case e.HasBody() && v.Owner.State == annotation.Foreign && v.Owner.Fingerprint != e.CheckedFingerprint:
		message := sentence.Contested(spec.Key, v.Owner.Manager())
		return Condition{State: Contested, Reason: failure.ReasonDrifted, Message: message}
	}
	return c
}
