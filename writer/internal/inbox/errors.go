package inbox

import "errors"

var (
	// ErrMalformed means that a message holds nothing that can be acted on.
	ErrMalformed = errors.New("malformed result")
	// ErrDigest means that a body does not have the digest it must have.
	ErrDigest = errors.New("body has another digest")
	// ErrProtected means that a result is for an object that is never written.
	ErrProtected = errors.New("protected object")
)
