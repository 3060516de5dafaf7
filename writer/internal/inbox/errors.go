package inbox

import "errors"

var (
	// errMalformed means that a message holds nothing that can be acted on.
	errMalformed = errors.New("malformed result")
	// errDigest means that a body does not have the digest it must have.
	errDigest = errors.New("body has another digest")
	// errProtected means that a result is for an object that is never written.
	errProtected = errors.New("protected object")
)
