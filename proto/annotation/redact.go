package annotation

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/kv8s/curl-me-that/proto/rule"
)

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
