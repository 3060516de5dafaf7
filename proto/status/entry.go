package status

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// maxValidatorBytes is the longest ETag or Last-Modified that is kept. The
// server chooses them; without one the next fetch is unconditional.
const maxValidatorBytes = 256

// Entry is the state of one key.
type Entry struct {
	// URL that the body in the key was fetched from, canonical and whole.
	URL string `json:"url,omitempty"`
	// SHA256 of the body, 64 lower-case hexadecimal digits; empty: the key was
	// never written by us.
	SHA256 string `json:"sha256,omitempty"`
	// Size of the body in bytes.
	Size int64 `json:"size,omitempty"`
	// FetchedAt is when the body last changed, to the second. It is written as
	// changedAt, too, which names what it is.
	FetchedAt time.Time `json:"fetchedAt,omitzero"`
	// ETag of the answer (RFC 9110 section 8.8.3).
	ETag string `json:"etag,omitempty"`
	// LastModified of the answer (RFC 9110 section 8.8.2).
	LastModified string `json:"lastModified,omitempty"`
	// Binary reports that the body is in binaryData.
	Binary bool `json:"binary,omitempty"`

	// Error is the reason of the failure that lasts, as in Events; empty: well.
	Error string `json:"error,omitempty"`
	// ErrorURL is the URL that fails, when it is not URL: the annotation has
	// changed and the key still holds the body of the old one.
	ErrorURL string `json:"errorUrl,omitempty"`
	// Since is when the first attempt of the unbroken row of failures was made, or a
	// key of somebody else was first seen, or, for a key that is well, when it
	// recovered from one; to the second.
	Since time.Time `json:"since,omitzero"`
	// Attempts made in that row when it was reported.
	Attempts uint32 `json:"attempts,omitempty"`
	// GaveUp reports that nothing is tried before the next refresh, recheck,
	// replay or edit.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Explanation of the failure; nil: well, or written by an older writer. Its
	// fields stand beside the others.
	*Explanation

	// Drift is the fingerprint of the foreign or missing ownership under which
	// the key was found to hold the right body (package annotation).
	Drift string `json:"drift,omitempty"`
	// Object is the Mark of the object that this entry was written on. An
	// annotation travels with backups and copies; empty: unknown.
	Object string `json:"object,omitempty"`
	// Fence of the trigger that this entry answers.
	Fence Fence `json:"fence,omitzero"`
}

// Explanation is more closely why a key fails and what comes next. It is not
// changed once an entry has it: entries share it.
type Explanation struct {
	// HTTPStatus of the last response; 0: there was none.
	HTTPStatus int32 `json:"httpStatus,omitempty"`
	// Message is the sentence of the Event, without what the key holds.
	Message string `json:"message,omitempty"`
	// NextTry is when the key was to be looked at next, to the second, when this
	// was written. When that has passed, later looks have found the same.
	NextTry time.Time `json:"nextTry,omitzero"`
	// WaitsFor is what the next look waits for, in words, such as "pause of
	// example.com"; empty: its time alone.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Stale reports that it has been failing for long; see condition.FailsForLong.
	Stale bool `json:"stale,omitempty"`
	// Terminal reports that each later look fails alike until the URL or the policy of
	// the operator is edited.
	Terminal bool `json:"terminal,omitempty"`
}

// markLength is how much of a uid a Mark is. Uids are random from the start, so
// two of the same name differ in it but once in four thousand million.
const markLength = 8

// Mark returns what identifies an object in Entry.Object: the first eight
// characters of its uid.
func Mark(uid types.UID) string { return string(uid[:min(len(uid), markLength)]) }

// Copied reports whether the entry was written on another object than the one
// with that uid. Its fence is then of no order with ours, and the rest of it may
// be untrue of this object.
func (e Entry) Copied(uid types.UID) bool { return e.Object != "" && e.Object != Mark(uid) }

// Body returns the fields of the entry that describe the body alone, without what
// it was fetched for: that much of a copied entry holds if the key has that body.
func (e Entry) Body() Entry {
	return Entry{
		SHA256: e.SHA256, Size: e.Size, FetchedAt: e.FetchedAt,
		ETag: e.ETag, LastModified: e.LastModified, Binary: e.Binary,
	}
}

// Written reports whether the key holds, or held, a body that we wrote.
func (e Entry) Written() bool { return e.SHA256 != "" }

// Failing reports whether the last attempt failed.
func (e Entry) Failing() bool { return e.Error != "" }

// Why returns the explanation of the failure; the zero value if there is none.
func (e Entry) Why() Explanation {
	if e.Explanation == nil {
		return Explanation{}
	}
	return *e.Explanation
}

// FailingURL returns the URL that fails, or nothing.
func (e Entry) FailingURL() string {
	if !e.Failing() {
		return ""
	}
	if e.ErrorURL != "" {
		return e.ErrorURL
	}
	return e.URL
}

// normal returns e as it is written: times in UTC to the second, only validators
// that can be sent, no ErrorURL that repeats URL.
func (e Entry) normal() Entry {
	e.FetchedAt = seconds(e.FetchedAt)
	e.Since = seconds(e.Since)
	e.ETag = validator(e.ETag)
	e.LastModified = validator(e.LastModified)
	if e.Explanation != nil {
		why := *e.Explanation
		why.NextTry = seconds(why.NextTry)
		e.Explanation = &why
	}
	if e.ErrorURL == e.URL {
		e.ErrorURL = ""
	}
	return e
}

// check refuses what no writer has written.
func (e Entry) check() error {
	if e.Size < 0 {
		return errors.New("size is negative")
	}
	if slices.ContainsFunc([]time.Time{e.FetchedAt, e.Since, e.Why().NextTry}, outOfRange) {
		return errors.New("time is out of range")
	}
	if e.SHA256 == "" {
		return nil
	}
	digest, err := hex.DecodeString(e.SHA256)
	if err != nil || len(digest) != 32 || hex.EncodeToString(digest) != e.SHA256 {
		return errors.New("sha256 is not 64 lower-case hexadecimal digits")
	}
	return nil
}

// outOfRange reports whether a time could not be written again.
func outOfRange(t time.Time) bool {
	year := t.UTC().Year()
	return year < 1 || year > 9999
}

// validator returns text when it is short enough to be stored and may stand in a
// request header, else nothing.
func validator(text string) string {
	outside := func(c rune) bool { return c < ' ' || c > '~' }
	if len(text) > maxValidatorBytes || strings.IndexFunc(text, outside) >= 0 {
		return ""
	}
	return text
}

// seconds returns t in UTC without a fraction.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
