package rule

import "regexp"

// words replaces messages of CEL by plain ones.
var words = [][2]string{
	{
		`^undeclared reference to '(all|exists|exists_one|filter|map)' \(in container.*`,
		"$1 takes a name and an expression, as in json.$1(x, x > 0)",
	},
	{
		`^undeclared reference to '(.*)' \(in container.*`,
		"$1 is unknown (use body, json, heldSize, now, certs and the standard functions of CEL)",
	},
	{
		`^found no matching overload for '(startsWith|endsWith|contains|matches)' applied to '.*'`,
		"$1 takes two texts; write it as in body.$1('…')",
	},
	{`^found no matching overload for '(size|certs)' applied to '(.*)'`, "'$1' does not take $2; write it as in $1(body)"},
	{`^found no matching overload for '_\?_:_' applied to '.*'`, "both results of '? :' must have the same type"},
	{
		`^found no matching overload for '_(.+)_' applied to '\((.*), (.*)\)'`,
		"'$1' does not take $2 and $3; convert one, as in int(…), double(…), string(…), timestamp(…) or duration('1h')",
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
