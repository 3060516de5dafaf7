package annotation

import (
	"regexp"
	"strings"
	"unicode"
)

// maxShown is how many characters of a refused value an Event repeats.
const maxShown = 200

// hidden stands for what is left out.
const hidden = "…"

var (
	// pairStart matches where a pair begins: a word up to its =, without
	// anything that a URL has before one.
	pairStart = regexp.MustCompile(`(?:^|\s)[^\s=:/?#@]+=`)
	// schemeStart matches the scheme of a URL.
	schemeStart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.\-]*://`)
	// webScheme matches the schemes that a request can have.
	webScheme = regexp.MustCompile(`^(?i:https?)://$`)
	// portEnd matches an authority that holds no password: no colon but that
	// of a port or those of an address in brackets.
	portEnd = regexp.MustCompile(`^(?:\[[^\]]*\]|[^:\[]*)(?::[0-9]+)?$`)
)

// quotable returns value as an Event may repeat it: on one line, without query
// strings, fragments and userinfo, at most maxShown characters.
//
// The value is malformed, so that where a secret ends can be unclear. A query
// therefore reaches up to the next pair, over white space, and what could be a
// password is hidden with all that follows.
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

// redact hides what must not be shown of one pair, or of what stands where a
// pair should be.
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

// redactUser removes userinfo from rest, which begins with an authority. Behind
// a scheme that is not known, and may be a user name, nothing is certain.
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
