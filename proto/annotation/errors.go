package annotation

import "errors"

// ErrManagedFields means that managedFields cannot be parsed.
var ErrManagedFields = errors.New("malformed managedFields")

// The errors below reject the whole value of an annotation, because using half of it would be a
// guess. Each is one sentence for an Event, without query string, fragment or userinfo.

// invalidPairs rejects a value of the main annotation.
func invalidPairs(value string) error {
	return errors.New("annotation value '" + quotablePart(value) + "' does not match expected format key=url")
}

// emptied rejects a main annotation without a value.
func emptied(annotation string) error {
	return errors.New("annotation " + shortName(annotation) + " is empty, so nothing is fetched and no key is removed; " +
		"write key=url, or remove the annotation to remove the keys that it filled")
}

// blocked ends a sentence about an annotation that stops all fetches of the object.
const blocked = "; nothing is fetched until this is corrected"

// tooLong rejects a value of the main annotation that exceeds a limit.
func tooLong(annotation, excess string) error {
	return errors.New("annotation " + shortName(annotation) + " has " + excess +
		"; spread the pairs over several ConfigMaps" + blocked)
}

// separated rejects a value of the main annotation whose pairs are separated by commas or semicolons.
func (p *parser) separated(number int, key string) error {
	if keyRule(key) != "" {
		key = ""
	}
	return errors.New(p.text(number, key, ruleEnd) + blocked)
}

// invalidOption rejects the value of an option. Its mistake completes the sentence "annotation
// curl-refresh value '…' …".
func invalidOption(name, value, mistake string) error {
	return errors.New("annotation " + name + " value '" + quotable(value) + "' " + mistake + blocked)
}
