package status

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// maxTextBytes is the maximum length of a text of an entry. URLs and Events are shorter.
const maxTextBytes = 4 << 10

// Entry is the state of one key.
type Entry struct {
	// URL of the body in the key, canonical and complete (empty: the body came from the history).
	URL string `json:"url,omitempty"`
	// SHA256 of the body, 64 lower-case hexadecimal digits (empty if we never wrote the key).
	SHA256 string `json:"sha256,omitempty"`
	// Size of the body in bytes.
	Size int64 `json:"size,omitempty"`
	// ChangedAt is when the body last changed, to the second.
	ChangedAt time.Time `json:"changedAt,omitzero"`
	// Rules is the hash of the rules and the selection that the body passed (empty: none).
	Rules string `json:"rules,omitempty"`
	// Available is the digest of other content of the URL, while curl-sha256 pins the key (empty: none).
	Available string `json:"available,omitempty"`
	// Binary reports that the body is in binaryData.
	Binary bool `json:"binary,omitempty"`

	// Error is the reason for the current failure, as in Events (empty if there is none).
	Error string `json:"error,omitempty"`
	// ErrorURL is the URL that fails, if it differs from URL: the annotation has changed, and the
	// key still holds the body of the old URL.
	ErrorURL string `json:"errorUrl,omitempty"`
	// Since is the time of the first failed attempt in an unbroken row, or when a foreign key was
	// first seen. For a healthy key, it is the time of its recovery. To the second.
	Since time.Time `json:"since,omitzero"`
	// Attempts is the number of attempts in that row at the time of the report.
	Attempts uint32 `json:"attempts,omitempty"`
	// GaveUp reports that there is no attempt before the next refresh, recheck, replay or edit.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Explanation of the failure; nil if there is none, or if the status had no room for it. Its
	// fields are inlined.
	*Explanation

	// CheckedFingerprint identifies the owner of a key that is not ours, or has no owner, but was found to hold the right
	// body (package annotation).
	CheckedFingerprint string `json:"checkedOwner,omitempty"`
	// Annotation is the annotation that asked for the key, as annotation.NameInStatus names it. Only an
	// installation that reads this annotation removes or changes the entry.
	Annotation string `json:"annotation,omitempty"`
	// UIDMark tells on which object this entry was written, because backups and copies include
	// annotations (empty if unknown).
	UIDMark string `json:"uidMark,omitempty"`
	// Fence of the trigger that led to this entry.
	Fence Fence `json:"fence,omitzero"`
}

// Explanation has details of a failure and of the next attempt. Entries share it, so it is
// immutable.
type Explanation struct {
	// HTTPStatus of the last response (0 without one).
	HTTPStatus int32 `json:"httpStatus,omitempty"`
	// Message is the sentence of the Event, without the part about the key's value.
	Message string `json:"message,omitempty"`
	// NextTry is the time of the next attempt as planned at the time of writing, to the second. If
	// it has passed, later attempts had the same outcome.
	NextTry time.Time `json:"nextTry,omitzero"`
	// WaitsFor is what the next attempt waits for, such as "pause of example.com"; empty: only for its time.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Stale reports that the key has been failing for long; see failure.FailsForLong.
	Stale bool `json:"stale,omitempty"`
	// Rule is the number of the rule that the last response does not meet, from 1 (0: none).
	Rule uint32 `json:"rule,omitempty"`
	// Terminal reports that attempts fail until somebody edits the URL or the operator's policy.
	Terminal bool `json:"terminal,omitempty"`
}

// uidMarkLength is the length of a UIDMark. Uids start with random digits, so two objects of the same
// name have the same UIDMark once in four billion times.
const uidMarkLength = 8

// UIDMark returns the value of Entry.UIDMark for a uid.
func UIDMark(uid types.UID) string { return string(uid[:min(len(uid), uidMarkLength)]) }

// Copied reports whether the entry was written on another object than the one with that uid. Then its
// fence is meaningless for this object, and the rest may be wrong.
func (e Entry) Copied(uid types.UID) bool { return e.UIDMark != "" && e.UIDMark != UIDMark(uid) }

// OnlyBody returns the fields that describe only the body. They hold for a copied entry, too, if the
// key has that body.
func (e Entry) OnlyBody() Entry {
	return Entry{
		SHA256: e.SHA256, Size: e.Size, ChangedAt: e.ChangedAt, Binary: e.Binary, Rules: e.Rules,
	}
}

// HasBody reports whether the key holds, or held, a body that we wrote.
func (e Entry) HasBody() bool { return e.SHA256 != "" }

// ByWriter reports whether the writer found the failure, which the streams do not show. A failed fetch has attempts.
func (e Entry) ByWriter() bool { return e.Failing() && e.Attempts == 0 }

// Refused reports whether the API server or another owner keeps the last body from being written.
func (e Entry) Refused() bool {
	switch failure.ClassOf(e.Error) {
	case failure.KeyExists, failure.Immutable,
		failure.BodyTooLarge, failure.WriteFailed:
		return e.ByWriter()
	default:
		return false
	}
}

// Mismatched reports whether the last body had another digest than the pinned one.
func (e Entry) Mismatched() bool {
	return failure.ClassOf(e.Error) == failure.DigestMismatch
}

// Failing reports whether the last attempt failed.
func (e Entry) Failing() bool { return e.Error != "" }

// WithoutFailure returns e without its failure.
func (e Entry) WithoutFailure() Entry {
	e.Error, e.ErrorURL, e.Attempts, e.GaveUp, e.Explanation = "", "", 0, false, nil
	return e
}

// Why returns the explanation of the failure, or the zero value.
func (e Entry) Why() Explanation {
	if e.Explanation == nil {
		return Explanation{}
	}
	return *e.Explanation
}

// FailingURL returns the URL that fails, or "".
func (e Entry) FailingURL() string {
	if !e.Failing() {
		return ""
	}
	if e.ErrorURL != "" {
		return e.ErrorURL
	}
	return e.URL
}

// normal returns e in its written form: times in UTC to the second, and no ErrorURL that repeats URL.
func (e Entry) normal() Entry {
	e.ChangedAt = seconds(e.ChangedAt)
	e.Since = seconds(e.Since)
	e.Annotation = asker(e.Annotation)
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

// check rejects entries that no writer has written.
func (e Entry) check() error {
	if e.Size < 0 {
		return errors.New("size is negative")
	}
	if slices.ContainsFunc([]time.Time{e.ChangedAt, e.Since, e.Why().NextTry}, outOfRange) {
		return errors.New("time is out of range")
	}
	why := e.Why()
	for _, text := range []string{e.URL, e.ErrorURL, e.Rules, e.CheckedFingerprint, e.UIDMark, why.Message, why.WaitsFor} {
		if len(text) > maxTextBytes {
			return fmt.Errorf("a text has more than %d bytes", maxTextBytes)
		}
	}
	for _, sum := range []string{e.SHA256, e.Available} {
		digest, err := hex.DecodeString(sum)
		if sum != "" && (err != nil || len(digest) != 32 || hex.EncodeToString(digest) != sum) {
			return errors.New("a digest does not have 64 lower-case hexadecimal digits")
		}
	}
	return nil
}

// outOfRange reports whether a time cannot be formatted.
func outOfRange(t time.Time) bool {
	year := t.UTC().Year()
	return year < 1 || year > 9999
}

// asker returns the name of an annotation, or "" if no annotation can have that name.
func asker(name string) string {
	if name == "" || len(validation.IsQualifiedName(strings.ToLower(name))) > 0 {
		return ""
	}
	return annotation.NameInStatus(name)
}

// seconds returns t in UTC without a fraction.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Fence orders the triggers of one key. A result is late if its fence is not newer than the one in
// the status annotation.
type Fence struct {
	// Epoch is when the stream of requests was created, in Unix milliseconds. It comes first,
	// because a new stream starts its sequence at 1.
	Epoch int64
	// Seq is the stream sequence of the trigger.
	Seq uint64
}

// MaxEpoch is the maximum epoch of a status: the end of the year 9999.
const MaxEpoch = 253402300799999

// String returns the fence as epoch.sequence.
func (f Fence) String() string {
	return strconv.FormatInt(f.Epoch, 10) + "." + strconv.FormatUint(f.Seq, 10)
}

// Compare returns -1, 0 or +1 as f is older than, equal to or newer than other.
func (f Fence) Compare(other Fence) int {
	return cmp.Or(cmp.Compare(f.Epoch, other.Epoch), cmp.Compare(f.Seq, other.Seq))
}

// Newer reports whether f comes after other.
func (f Fence) Newer(other Fence) bool { return f.Compare(other) > 0 }

// EpochAfter returns an epoch in which the trigger with that sequence comes after f. This is the
// epoch of its stream, unless f has a later one because the stream was restored from a backup, or
// was recreated while the clock was behind.
func (f Fence) EpochAfter(stream int64, seq uint64) int64 {
	switch {
	case f.Epoch < stream:
		return stream
	case f.Seq < seq:
		return f.Epoch
	default:
		return f.Epoch + 1
	}
}

// IsZero reports whether f is the zero value, which means no fence.
func (f Fence) IsZero() bool { return f == Fence{} }

// MarshalText implements encoding.TextMarshaler.
func (f Fence) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. MaxEpoch gives the zero value, because no real
// clock is that wrong and no trigger could come after it.
func (f *Fence) UnmarshalText(text []byte) error {
	epochText, seqText, _ := strings.Cut(string(text), ".")
	epoch, errEpoch := strconv.ParseInt(epochText, 10, 64)
	seq, errSeq := strconv.ParseUint(seqText, 10, 64)
	if errEpoch != nil || errSeq != nil || epoch < 0 || epoch > MaxEpoch {
		return errors.New("fence does not have the form epoch.sequence")
	}
	*f = Fence{}
	if epoch < MaxEpoch {
		*f = Fence{Epoch: epoch, Seq: seq}
	}
	return nil
}
