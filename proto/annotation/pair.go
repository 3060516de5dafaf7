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
	ruleEnd   = "the url ends with a comma"
	ruleComma = "the host contains a comma"
	ruleJoin  = "the url contains a comma and what looks like another pair"
)

// advice tells how to fix each kind of mistake.
var advice = map[string]string{
	ruleKey:          "use only those",
	ruleLong:         "use a shorter one",
	ruleDots:         "use another one",
	ruleTwice:        "use each key once",
	ruleComma:        "separate pairs by spaces",
	ruleEnd:          "separate pairs by spaces only, or write %2C if the comma belongs to the url",
	ruleJoin:         "separate pairs by spaces, or write %2C if the comma belongs to the url",
	weburl.BadScheme: "use http:// or https://",
	weburl.HasUser:   "remove it, and ask the operator to configure credentials for that host",
	weburl.BadText:   "escape them, as in %20",
	weburl.TooLong:   "use a shorter one",
	weburl.NoHost:    "write key=host/path",
}

// adviceOther is the advice for all other mistakes in URLs.
const adviceOther = "write it as in key=https://example.com/path"

var (
	// commaInHost matches a URL with a comma in its host, where it is never valid.
	commaInHost = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9+.\-]*://)?[^/?#@,]*,[^/?#@]*(?:[/?#]|$)`)
	// commaInPath matches a URL that contains a comma and then another pair, before any query.
	commaInPath = regexp.MustCompile(`^[^?#]*,[-._A-Za-z0-9]+=(?i:https?)://`)
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
	if wrong != "" && wrong != weburl.BadScheme && commaInHost.MatchString(value) {
		wrong = ruleComma
	}
	if wrong != "" {
		p.refuse(number, key, wrong)
		p.broken = true
		return
	}
	p.broken = false
	if commaInPath.MatchString(value) {
		p.refuse(number, key, ruleJoin)
		return
	}
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
