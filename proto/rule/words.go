package rule

import "regexp"

// words replaces messages of CEL by plain ones.
var words = [][2]string{
	{
		`^undeclared reference to '(.*)' \(in container.*`,
		"$1 is unknown (use body, json, heldSize, now, certs and the standard functions of CEL)",
	},
	{
		`^found no matching overload for '(startsWith|endsWith|contains|matches)' applied to '\((?:string|dyn)\)'`,
		"$1 needs a text before it, as in body.$1('…')",
	},
	{`^found no matching overload for '_?(.*?)_?' applied to '(?:dyn\.)?(.*)'`, "'$1' does not take $2"},
	{`^expression code point size exceeds limit: size: (.*), limit (.*)`, "it has $1 characters, more than $2"},
	{`.*'<EOF>'.*`, "the expression is incomplete"},
	{`^(?:mismatched|extraneous) input ('.*') expecting.*`, "$1 is not expected"},
	{`^no viable alternative at input ('.*')`, "$1 is not expected"},
	{`^token recognition error at: '(.*?) ?'$`, "'$1' is not expected"},
}

func simplified(message string) string {
	for _, w := range words {
		message = regexp.MustCompile(w[0]).ReplaceAllString(message, w[1])
	}
	return message
}
