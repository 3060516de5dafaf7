package annotation

import (
	"errors"
	"regexp"
	"strings"
	"unicode"

	"github.com/kv8s/curl-me-that/proto/rule"
)

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
	if keyMistake(key) != "" {
		key = ""
	}
	return errors.New(p.text(number, key, separatorAtEnd) + blocked)
}

// invalidOption rejects the value of an option. Its mistake completes the sentence "annotation
// curl-refresh value '…' …".
func invalidOption(name, value, mistake string) error {
	return errors.New("annotation " + name + " value '" + quotable(value) + "' " + mistake + blocked)
}

// hidden replaces the hidden parts.
const hidden = "…"

// pairStart matches the start of a pair: a word up to its =, without characters that would make it
// part of a URL.
var pairStart = regexp.MustCompile(`(?:^|\s)[^\s=:/?#@]+=`)

// quotable returns value in a form that an Event may repeat: on one line, without query strings,
// fragments and userinfo, and not too long.
//
// The value is malformed, so the end of a secret can be unclear. A query is therefore hidden up to
// the next pair, including white space, and a URL with an @ is hidden completely.
//
// Of a value above MaxValueBytes it shows nothing, because reading it costs too much.
func quotable(value string) string {
	if len(value) > MaxValueBytes {
		return hidden
	}
	var text strings.Builder
	for _, part := range parts(value) {
		text.WriteString(redact(part))
	}
	return rule.Shortened(text.String())
}

// quotablePart is quotable for the first part of value, up to the next pair, that is more than a pair.
func quotablePart(value string) string {
	for _, part := range parts(value) {
		if words := len(strings.Fields(part)); words > 1 || words == 1 && !pairStart.MatchString(part) {
			return rule.Shortened(redact(strings.TrimSpace(part)))
		}
	}
	return quotable(value)
}

// word returns the part of the value of an option that a message quotes: one field, or the whole value if the end of
// a secret in it may be unclear.
func word(value, field string) string {
	if strings.ContainsAny(value, "?#@") {
		return value
	}
	return field
}

// parts returns value on one line, cut before each pair.
func parts(value string) (all []string) {
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(value, "\uFFFD"))
	start := 0
	for _, at := range pairStart.FindAllStringIndex(line, -1) {
		all = append(all, line[start:at[0]])
		start = at[0]
	}
	return append(all, line[start:])
}

// redact hides the secret parts of one pair, or of a malformed one.
func redact(pair string) string {
	key := pairStart.FindString(pair)
	rest := pair[len(key):]
	shown := len(rest)
	if strings.Contains(rest, "@") {
		shown = 0
	} else if mark := strings.IndexAny(rest, "?#"); mark >= 0 {
		shown = mark + 1
	}
	if shown == len(rest) {
		return pair
	}
	trailing := rest[len(strings.TrimRightFunc(rest, unicode.IsSpace)):]
	return key + rest[:shown] + hidden + trailing
}
