package annotation

import (
	"errors"
	"fmt"
)

var (
	// ErrConfig wraps the errors of New. They are the operator's mistakes, not a user's.
	ErrConfig = errors.New("invalid annotation settings")
	// ErrManagedFields means that managedFields cannot be parsed.
	ErrManagedFields = errors.New("malformed managedFields")
)

// ValueError means that the whole value of an annotation is unusable, because using half of it
// would be a guess.
//
// Error returns one sentence for an Event, without query string, fragment or userinfo. Cause is for
// logs and tools and contains no part of a URL.
type ValueError struct {
	annotation string
	text       string
	cause      string
}

// Error returns the sentence for the author of the annotation.
func (e *ValueError) Error() string { return e.text }

// Annotation returns the full name of the annotation.
func (e *ValueError) Annotation() string { return e.annotation }

// Cause returns the invalid part of the value and the reason, such as "pair 2 (key mydata): host is
// missing".
func (e *ValueError) Cause() string { return e.cause }

// invalidPairs rejects a value of the main annotation.
func invalidPairs(annotation, value, cause string) error {
	return &ValueError{
		annotation: annotation,
		text:       "annotation value '" + quotable(value) + "' does not match expected format key=url",
		cause:      cause,
	}
}

// blocked ends a sentence about an annotation that stops all fetches of the object.
const blocked = "; nothing is fetched until this is corrected"

// tooLong rejects a value of the main annotation that exceeds a limit.
func tooLong(annotation, excess string) error {
	return &ValueError{
		annotation: annotation,
		text: "annotation " + shortName(annotation) + " has " + excess +
			"; spread the pairs over several ConfigMaps" + blocked,
		cause: excess,
	}
}

// commaList rejects a value of the main annotation whose pairs are separated by commas.
func (p *parser) commaList(number int, key string) error {
	if keyRule(key) != "" {
		key = ""
	}
	return &ValueError{
		annotation: p.annotation, text: p.text(number, key, ruleEnd) + blocked,
		cause: fmt.Sprintf("pair %d: %s", number, ruleEnd),
	}
}

// invalidOption rejects a value of an option; wrong completes the sentence "annotation curl-refresh
// value '…' …".
func invalidOption(annotation, name, value, wrong, cause string) error {
	return &ValueError{
		annotation: annotation,
		text:       "annotation " + name + " value '" + quotable(value) + "' " + wrong + blocked,
		cause:      cause,
	}
}
