package annotation

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// keyCharacters are the characters allowed in a ConfigMap key.
const keyCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

const (
	ruleKey   = "the key has characters other than letters, digits, -, _ and ."
	ruleLong  = "the key is longer than 253 characters"
	ruleDots  = "the key is . or begins with .."
	ruleTwice = "the key appears twice, so none of its urls is fetched"
	ruleBlank = "the key contains an invisible character, such as a byte order mark or a zero-width space"
	ruleQuote = "the pair is in quotes"
	ruleEnd   = "the url ends with a comma or semicolon"
	ruleComma = "the host contains a comma or semicolon"
	ruleJoin  = "the url contains what looks like another pair"
)

// advice tells how to fix each kind of mistake.
var advice = map[string]string{
	ruleKey:           "use only those",
	ruleLong:          "use a shorter one",
	ruleDots:          "use another one",
	ruleTwice:         "use each key once",
	ruleBlank:         "delete the key and type it again",
	ruleQuote:         "remove them",
	ruleComma:         "separate pairs by spaces",
	ruleEnd:           "separate pairs by spaces only, or write %2C or %3B if it belongs to the url",
	ruleJoin:          "separate pairs by spaces, or write %2C or %3B if the comma or semicolon belongs to the url",
	weburl.BadScheme:  "use http:// or https://",
	weburl.HasUser:    "remove it, and ask the operator to configure credentials for that host",
	weburl.Hidden:     "delete the url and type it again, or escape it, as in %E2%80%8B",
	weburl.Quoted:     "remove them",
	weburl.BadPercent: "write %25 for a percent sign",
	weburl.Underscore: "use another name of that server, or ask its owner for one",
	weburl.BadName:    "write it in punycode, as in xn--bcher-kva.example",
	weburl.TooLong:    "use a shorter one",
	weburl.NoHost:     "write key=host/path",
}

// adviceOther is the advice for all other mistakes in URLs.
const adviceOther = "write it as in key=https://example.com/path"

var (
	// quoteStart matches the start of a quoted pair.
	quoteStart = regexp.MustCompile("^[\"'`\u2018\u201c]")
	// separatorInHost matches a URL with a separator in its host, where it is never valid.
	separatorInHost = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9+.\-]*://)?[^/?#@,;]*[,;][^/?#@]*(?:[/?#]|$)`)
	// pairInPath matches a URL that contains a separator, perhaps a newline that was not unescaped, and
	// then another pair, before any query.
	pairInPath = regexp.MustCompile(`^[^?#]*(?:[,;|]|\\[nrt])[-._A-Za-z0-9]+=(?i:https?)://`)
)

// parser parses pairs.
type parser struct {
	grammar *Grammar
	request *Request
	// count is the number of times that each key appears, and seen the number of times so far.
	count map[string]int
	seen  map[string]int
	// broken reports that the url of the previous pair was rejected.
	broken bool
}

// pair parses the pair with that number.
func (p *parser) pair(number int, key, value string) {
	if rule := keyRule(key); rule != "" {
		p.refuse(number, "", rule)
		return
	}
	if p.count[key] > 1 {
		p.repeated(number, key)
		return
	}
	url, wrong := weburl.Canonical(value, p.grammar.defaultScheme)
	switch {
	case wrong != "" && wrong != weburl.BadScheme && wrong != weburl.Mistyped && separatorInHost.MatchString(value):
		wrong = ruleComma
	case wrong != weburl.HasUser && pairInPath.MatchString(value):
		wrong = ruleJoin
	}
	if wrong != "" {
		p.refuse(number, key, wrong)
		p.broken = true
		return
	}
	p.broken = false
	p.request.Pairs = append(p.request.Pairs, Pair{Key: key, URL: url})
}

// repeated rejects all pairs of a key that appears more than once, because choosing one would be a
// guess. It reports one problem, for the second.
func (p *parser) repeated(number int, key string) {
	p.seen[key]++
	if p.seen[key] == 2 {
		p.refuse(number, key, ruleTwice)
	}
}

func (p *parser) refuse(number int, key, rule string) {
	shown := key
	if rule == weburl.HasUser && p.broken {
		shown = "" // it may be the part of a password after a space
	}
	p.request.reject(Problem{Key: key, Rule: rule, Text: p.text(number, shown, rule)})
}

// text returns the sentence about a pair.
func (p *parser) text(number int, key, rule string) string {
	where := fmt.Sprintf("annotation %s, pair %d", shortName(p.request.Annotation), number)
	if key != "" {
		where += " (key " + key + ")"
	}
	what, found := advice[rule]
	if !found {
		what = adviceOther
	}
	return where + ": " + rule + "; " + what
}

// keyRule returns the rule that a key breaks, or "".
func keyRule(key string) string {
	switch {
	case len(validation.IsConfigMapKey(key)) == 0:
		return ""
	case strings.ContainsFunc(key, weburl.Invisible):
		return ruleBlank
	case quoteStart.MatchString(key):
		return ruleQuote
	case strings.Trim(key, keyCharacters) != "":
		return ruleKey
	case len(key) > validation.DNS1123SubdomainMaxLength:
		return ruleLong
	}
	return ruleDots
}

// shortName returns an annotation key without its prefix.
func shortName(annotation string) string {
	_, name, _ := strings.Cut(annotation, "/")
	return name
}
