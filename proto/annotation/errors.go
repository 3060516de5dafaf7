package annotation

import "errors"

var (
	// ErrConfig wraps what New refuses: a mistake of the operator, not of a user.
	ErrConfig = errors.New("invalid annotation settings")
	// ErrManagedFields means that managedFields cannot be read.
	ErrManagedFields = errors.New("malformed managedFields")
)

// ValueError means that the value of an annotation cannot be used as a whole:
// half of it would be a guess.
//
// Error is one sentence for an Event and carries no query string, no fragment
// and no userinfo. Cause is for logs and tools and carries no part of a URL.
type ValueError struct {
	annotation string
	text       string
	cause      string
}

// Error returns the sentence that the author of the annotation reads.
func (e *ValueError) Error() string { return e.text }

// Annotation returns the full name of the annotation.
func (e *ValueError) Annotation() string { return e.annotation }

// Cause returns which part of the value is wrong and why, such as
// "pair 2 (key mydata): host is missing".
func (e *ValueError) Cause() string { return e.cause }

// invalidPairs refuses a value of the main annotation, in the words that users
// know.
func invalidPairs(annotation, value, cause string) error {
	return &ValueError{
		annotation: annotation,
		text:       "annotation value '" + quotable(value) + "' does not match expected format key=url",
		cause:      cause,
	}
}

// tooLong refuses a value of the main annotation that is beyond a limit.
func tooLong(annotation, excess string) error {
	return &ValueError{
		annotation: annotation,
		text:       "annotation " + shortName(annotation) + " has " + excess + "; spread the pairs over several ConfigMaps",
		cause:      excess,
	}
}

// invalidOption refuses a value of an option; wrong completes the sentence
// "annotation curl-refresh value '…' …".
func invalidOption(annotation, name, value, wrong, cause string) error {
	return &ValueError{
		annotation: annotation,
		text:       "annotation " + name + " value '" + quotable(value) + "' " + wrong,
		cause:      cause,
	}
}
