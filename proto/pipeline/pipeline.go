// Package pipeline is the protocol on the wire: the streams and consumers of NATS JetStream, their
// subjects, and how messages are published, read and acknowledged. The messages are in package
// curlmethat/v1.
//
// It needs message schedules (ADR-51) and per-message expiry (ADR-43) of NATS: see MinServer.
package pipeline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"
)

// MinServer is the oldest version of NATS without known faults that break a promise.
const MinServer = "2.14.7"

// flaws are the faults of older versions, each with the version that fixed it, the oldest first.
var flaws = []struct{ fixed, flaw string }{
	{"2.12.0", "it cannot schedule messages (ADR-51)"},
	{"2.14.0", "any client may purge any subject by schedule headers (nats-server#8055, #8135)"},
	{MinServer, "it leaks the entries of expired messages (nats-server#8594)"},
}

// ServerFlaw returns the worst known flaw of a version of NATS, as in "upgrade NATS 2.12.1 to 2.14.7 or
// newer: any client …", or "". A version that is not semantic, such as that of a build from source, has none.
func ServerFlaw(version string) string {
	if !semver.IsValid("v" + version) {
		return ""
	}
	for _, f := range flaws {
		if semver.Compare("v"+version, "v"+f.fixed) < 0 {
			return fmt.Sprintf("upgrade NATS %s to %s or newer: %s", version, MinServer, f.flaw)
		}
	}
	return ""
}

// Reasons why a publish fails.
var (
	// ErrSuperseded means that a compare-and-set failed because the subject no longer holds the
	// expected message.
	ErrSuperseded = errors.New("subject does not hold the expected message")
	// ErrInFlight means that a compare-and-set failed because another publish is in flight. The
	// content of the subject is unknown, and a retry may succeed.
	ErrInFlight = errors.New("another publish to the subject is in flight")
	// ErrFull means that a stream is full, such as Results while the writer is behind.
	ErrFull = errors.New("stream is full")
	// ErrTooLarge means that a message exceeds a limit of the server or the stream.
	ErrTooLarge = errors.New("message is too large")
)

// Error codes of the JetStream API that nats.go does not define.
const (
	// codeWrongLastSequence means that an expectation failed.
	codeWrongLastSequence jetstream.ErrorCode = 10071
	// codeWrongLastSequenceConstant means that a replicated stream cannot check the expectation
	// yet, because another publish is in flight.
	codeWrongLastSequenceConstant jetstream.ErrorCode = 10164
	// codeStoreFailed wraps "maximum bytes exceeded" and similar errors.
	codeStoreFailed jetstream.ErrorCode = 10077
	// codeMessageTooLarge means that a message exceeds MaxMsgSize.
	codeMessageTooLarge jetstream.ErrorCode = 10054
)

// hasCode reports whether err is an API error with one of the codes.
func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// wrapServerError wraps an error of the server in the matching error of this package.
func wrapServerError(err error) error {
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
