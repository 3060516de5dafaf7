package inbox

import "errors"

var (
	// ErrMalformed tells that a message says nothing that can be acted on.
	ErrMalformed = errors.New("malformed result")
	// ErrDigest tells that a body does not have the digest it must have.
	ErrDigest = errors.New("body has another digest")
	// ErrProtected tells that a result is for an object that is never written.
	ErrProtected = errors.New("protected object")
)
