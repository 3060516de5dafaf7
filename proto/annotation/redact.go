package annotation

import (
	"regexp"
	"strings"
	"unicode"
)

// maxShown is the maximum number of characters of a rejected value that an Event repeats.
const maxShown = 200

// hidden replaces the hidden parts.
const hidden = "…"

var (
	// pairStart matches the start of a pair: a word up to its =, without characters that would make
	// it part of a URL.
	pairStart = regexp.MustCompile(`(?:^|\s)[^\s=:/?#@]+=`)
	// schemeStart matches the scheme of a URL.
	schemeStart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.\-]*://`)
	// webScheme matches http and https.
	webScheme = regexp.MustCompile(`^(?i:https?)://$`)
	// portEnd matches an authority without a password: it has no colon other than the port's or
	// those of an address in brackets.
	portEnd = regexp.MustCompile(`^(?:\[[^\]]*\]|[^:\[]*)(?::[0-9]+)?$`)
)

// quotable returns value in a form that an Event may repeat: on one line, without query strings,
// fragments and userinfo, at most maxShown characters.
//
// The value is malformed, so the end of a secret can be unclear. A query is therefore hidden up to
// the next pair, including white space, and a possible password is hidden with everything after it.
func quotable(value string) string {
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(value, "\uFFFD"))

	var text strings.Builder
	start := 0
	for _, at := range pairStart.FindAllStringIndex(line, -1) {
		text.WriteString(redact(line[start:at[0]]))
		start = at[0]
	}
	text.WriteString(redact(line[start:]))

	shown := []rune(text.String())
	if len(shown) > maxShown {
		return string(shown[:maxShown-1]) + hidden
	}
	return string(shown)
}

// redact hides the secret parts of one pair, or of a malformed one.
func redact(pair string) string {
	key := pairStart.FindString(pair)
	rest := pair[len(key):]
	scheme := schemeStart.FindString(rest)
	rest = redactUser(rest[len(scheme):], scheme == "" || webScheme.MatchString(scheme))

	for _, mark := range []string{"?", "#"} {
		if before, after, _ := strings.Cut(rest, mark); after != "" {
			rest = before + mark + hidden + trailingSpace(after)
		}
	}
	return key + scheme + rest
}

// redactUser removes userinfo from rest, which begins with an authority. An unknown scheme may be a
// user name, so everything after it is hidden.
func redactUser(rest string, known bool) string {
	authority, path := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority, path = rest[:end], rest[end:]
	}
	user := strings.LastIndex(authority, "@")
	certain := known && user < 0 && portEnd.MatchString(strings.TrimSpace(authority))
	if !certain && strings.Contains(path, "@") {
		return hidden + trailingSpace(rest)
	}
	return authority[user+1:] + path
}

// trailingSpace returns the white space at the end of text.
func trailingSpace(text string) string {
	return text[len(strings.TrimRightFunc(text, unicode.IsSpace)):]
}
