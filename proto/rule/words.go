package rule

import "regexp"

// words say what CEL says to its programmers in words for everyone.
var words = []struct {
	cel   *regexp.Regexp
	plain string
}{
	{
		regexp.MustCompile(`^undeclared reference to '(.*)' \(in container.*`),
		"$1 is unknown (use body, json, heldSize and the standard functions of CEL)",
	},
	{
		regexp.MustCompile(`^found no matching overload for '_?(.*?)_?' applied to '(?:dyn\.)?(.*)'`),
		"'$1' does not take $2",
	},
	{regexp.MustCompile(`.*'<EOF>'.*`), "the expression is incomplete"},
	{regexp.MustCompile(`^(?:mismatched|extraneous) input ('.*') expecting.*`), "$1 is not expected"},
	{regexp.MustCompile(`^no viable alternative at input ('.*')`), "$1 is not expected"},
	{regexp.MustCompile(`^token recognition error at: '(.*?) ?'$`), "'$1' is not expected"},
}

func simplified(message string) string {
	for _, w := range words {
		message = w.cel.ReplaceAllString(message, w.plain)
	}
	return message
}
