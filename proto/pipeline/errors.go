package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What a publish is refused for.
var (
	// ErrSuperseded means that a compare-and-set was refused: the subject no
	// longer holds the expected message.
	ErrSuperseded = errors.New("subject holds another message than expected")
	// ErrInFlight means that a compare-and-set was refused because of another
	// publish whose outcome is open. What the subject holds is unknown then: the
	// same may succeed in a moment.
	ErrInFlight = errors.New("another publish to the subject is in flight")
	// ErrFull means that a stream is full: that of results when the writer is behind.
	ErrFull = errors.New("stream is full")
	// ErrTooLarge means that a message exceeds what the server or the stream
	// accepts.
	ErrTooLarge = errors.New("message is too large")
)

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

// Refusal adds to an error the one of this package that an answer of the server means.
func Refusal(err error) error {
	switch {
	case hasCode(err, codeWrongLastSequence, codeWrongLastSequenceConstant):
		return fmt.Errorf("%w (%w)", ErrSuperseded, err)
	case hasCode(err, codeStoreFailed):
		return fmt.Errorf("%w (%w)", ErrFull, err)
	case errors.Is(err, nats.ErrMaxPayload), hasCode(err, codeMessageTooLarge):
		return fmt.Errorf("%w (%w)", ErrTooLarge, err)
	}
	return err
}
