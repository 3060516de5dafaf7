package pipeline

import (
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrSuperseded means that a compare-and-set was refused: the subject no
	// longer holds the expected message.
	ErrSuperseded = errors.New("subject holds another message than expected")
	// ErrNoMessage means that a subject holds no message. In a cluster the
	// replica that was asked may only not know of it yet.
	ErrNoMessage = errors.New("subject holds no message")
	// ErrInFlight means that a compare-and-set was refused because of another
	// publish whose outcome is open. What the subject holds is unknown then: the
	// same may succeed in a moment.
	ErrInFlight = errors.New("another publish to the subject is in flight")
	// ErrSubject means that a subject is not one of this protocol.
	ErrSubject = errors.New("subject is not one of the pipeline")
	// ErrMalformed means that a message cannot be decoded.
	ErrMalformed = errors.New("message is malformed")
	// ErrFull means that a stream is full: that of results when the writer is behind.
	ErrFull = errors.New("stream is full")
	// ErrTooLarge means that a message exceeds what the server or the stream
	// accepts.
	ErrTooLarge = errors.New("message is too large")
	// ErrIncompatible means that a stream or consumer exists with a
	// configuration that the server will not change to the one needed.
	ErrIncompatible = errors.New("incompatible configuration")
	// ErrNoAudit means that the stream of what operators did cannot be created or
	// updated, and all others are as they must be: data goes on, and operators
	// cannot act.
	ErrNoAudit = errors.New("no stream for the audit")
	// errPoison means that a message was handled again and again, and no
	// handling came to an end.
	errPoison = errors.New("message was handled again and again without an end")
	// ErrPanic means that the handler of a message panicked.
	ErrPanic = errors.New("handler panicked")
)

// Unreadable reports whether an error is about one stored message only, so that
// a list of messages may leave it out and go on behind it.
func Unreadable(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrSubject)
}

// Error codes of the JetStream API that nats.go has no name for.
const (
	// codeWrongLastSequence is the answer to a failed expectation.
	codeWrongLastSequence jetstream.ErrorCode = 10071
	// codeWrongLastSequenceConstant is the answer of a replicated stream that
	// cannot check the expectation yet, as a publish before it is in flight.
	codeWrongLastSequenceConstant jetstream.ErrorCode = 10164
	// codeStoreFailed wraps "maximum bytes exceeded" and friends.
	codeStoreFailed jetstream.ErrorCode = 10077
	// codeMessageTooLarge answers a message above MaxMsgSize.
	codeMessageTooLarge jetstream.ErrorCode = 10054
)

// hasCode reports whether err is an API error with one of the codes.
func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}
