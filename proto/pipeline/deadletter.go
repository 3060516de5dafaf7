package pipeline

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// maxDeadLetterPayload is the maximum number of bytes of a message in its dead letter. A larger want
// is left out.
const maxDeadLetterPayload = 64 << 10

// maxSnippet is the maximum length of the start of a body in a dead letter.
const maxSnippet = 1 << 10

// ClassError gives an error a failure class other than Malformed.
type ClassError struct {
	// Class of the failure.
	Class v1.FailureClass
	// Err is the error.
	Err error
}

// Error returns the text of Err.
func (e *ClassError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ClassError) Unwrap() error { return e.Err }

// FailureClass returns the failure class for a message that cannot be handled because of err.
func FailureClass(err error) v1.FailureClass {
	switch classed, ok := errors.AsType[*ClassError](err); {
	case ok:
		return classed.Class
	case errors.Is(err, errPoison):
		return v1.FailureClass_FAILURE_CLASS_POISON
	}
	return v1.FailureClass_FAILURE_CLASS_MALFORMED
}

// deadLetter returns the dead letter for a message that cannot be handled, and the key in its
// subject.
func (d *Delivery) deadLetter(why error, now time.Time) (Key, *v1.DeadLetter) {
	kind, key, err := ParseSubject(d.Subject())
	if err != nil {
		key = Key{}
	}
	at := timestamppb.New(now)
	letter := &v1.DeadLetter{
		Failure:      &v1.Failure{Class: FailureClass(why), Attempts: 1, FirstFailedAt: at, GaveUp: true},
		Sequence:     d.Sequence(),
		LastFailedAt: at,
		Subject:      d.Subject(),
		Payload:      d.Data()[:min(len(d.Data()), maxDeadLetterPayload)],
		Traceparent:  Traceparent(d.span),
	}
	want, sequence, body := wantIn(kind, key, d.Data())
	letter.Snippet = body[:min(len(body), maxSnippet)]
	if want == nil {
		return key, letter
	}
	want.Status = ""
	if proto.Size(want) > maxDeadLetterPayload {
		return key, letter
	}
	letter.Want, letter.Failure.Host = want, HostOf(want.GetUrl())
	if sequence > 0 {
		letter.Sequence = sequence
	}
	return key, letter
}

// wantIn returns the want in a message, as far as it can be decoded, and the sequence of the
// trigger and the body if the message is a result.
func wantIn(kind Kind, key Key, data []byte) (want *v1.Want, sequence uint64, body []byte) {
	switch kind {
	case KindWant:
		want, _ = DecodeWant(key, data)
	case KindDue:
		due, _ := DecodeDue(key, data)
		want = due.GetWant()
	case KindContent, KindFailure, KindReconcile:
		result, _ := DecodeResult(key, data)
		want, sequence, body = result.GetWant(), result.GetSequence(), result.GetContent().GetBody()
	case KindTimer, KindVersion:
		// Consumers never receive them: the server publishes a due instead of a timer.
	}
	return want, sequence, body
}
