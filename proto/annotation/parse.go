package annotation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

// ParseObject parses the annotations of a ConfigMap as Parse does, and adds a problem for each label
// that should be an annotation.
func (g *Grammar) ParseObject(o metav1.Object) (Request, error) {
	request, err := g.Parse(o.GetAnnotations())
	g.mislabeled(o.GetLabels(), &request)
	return request, err
}

// Parse parses the annotations of one ConfigMap.
//
// Without an accepted annotation, the Request has at most Suspended and Problems. If a whole value is
// unusable, Parse returns an error, which is one sentence for an Event, and a Request that has only
// Present, Annotation and, if it could be parsed, Suspended. A pair with a mistake becomes one of the
// Problems. The other pairs still count.
func (g *Grammar) Parse(annotations map[string]string) (request Request, err error) {
	key, value, found := g.Find(annotations)
	options := g.values(annotations)
	request = Request{Present: found, Annotation: key}
	if request.Suspended, err = flag(options, SuspendName); err != nil {
		return request, err
	}
	if !found {
		g.unknownNames(annotations, &request)
		return request, nil
	}
	unparsed := request

	if err = g.pairs(&request, value); err != nil {
		return unparsed, err
	}
	if request.AllowHTML, err = flag(options, AllowHTMLName); err != nil {
		return unparsed, err
	}
	if err = g.refresh(options[RefreshName], &request); err != nil {
		return unparsed, err
	}
	if request.SHA256, err = digests(options[SHA256Name], request); err != nil {
		return unparsed, err
	}
	if err = expressions(options, &request); err != nil {
		return unparsed, err
	}
	request.Now = NowValue(options[NowName])
	g.ignored(annotations, value, &request)
	g.unknownNames(annotations, &request)
	return request, nil
}

// pairs parses the value of the main annotation. A field that is not a pair makes the boundaries of
// its neighbours unclear, so the whole value is rejected. A pair with a mistake is rejected
// alone.
func (g *Grammar) pairs(request *Request, value string) error {
	fields, excess := split(value)
	if excess != "" {
		return tooLong(request.Annotation, excess)
	}
	if len(fields) == 0 {
		return emptied(request.Annotation)
	}
	p := &parser{grammar: g, request: request, count: map[string]int{}, seen: map[string]int{}}
	for _, field := range fields {
		key, _, found := strings.Cut(field, "=")
		if !found || key == "" || strings.ContainsAny(key, ":?#@") { // a part of a URL
			return invalidPairs(value)
		}
		p.count[key]++
	}
	for i, field := range fields {
		key, url, _ := strings.Cut(field, "=")
		if strings.HasSuffix(field, ",") || strings.HasSuffix(field, ";") {
			return p.separated(i+1, key)
		}
		p.pair(i+1, key, url)
	}
	slices.SortFunc(request.Pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

// split returns the fields of text, or the limit that it exceeds.
func split(text string) (fields []string, excess string) {
	if len(text) > MaxValueBytes {
		return nil, fmt.Sprintf("%d bytes, more than %d", len(text), MaxValueBytes)
	}
	fields = strings.Fields(text)
	if len(fields) > MaxPairs {
		return nil, fmt.Sprintf("%d pairs, more than %d", len(fields), MaxPairs)
	}
	return fields, ""
}

// keyCharacters are the characters allowed in a ConfigMap key.
const keyCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

const (
	oddKey         = "the key has characters other than letters, digits, -, _ and ."
	longKey        = "the key is longer than 253 characters"
	dottedKey      = "the key is . or begins with .."
	repeatedKey    = "the key appears twice, so none of its urls is fetched"
	invisibleKey   = "the key contains an invisible character, such as a byte order mark or a zero-width space"
	quotedPair     = "the pair is in quotes"
	separatorAtEnd = "the url ends with a comma or semicolon"
	commaInHost    = "the host contains a comma or semicolon"
	joinedPairs    = "the url contains what looks like another pair"
)

// advice tells how to fix each kind of mistake.
var advice = map[string]string{
	oddKey:            "use only those",
	longKey:           "use a shorter one",
	dottedKey:         "use another one",
	repeatedKey:       "use each key once",
	invisibleKey:      "delete the key and type it again",
	quotedPair:        "remove them",
	commaInHost:       "separate pairs by spaces",
	separatorAtEnd:    "separate pairs by spaces only, or write %2C or %3B if it belongs to the url",
	joinedPairs:       "separate pairs by spaces, or write %2C or %3B if the comma or semicolon belongs to the url",
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
	if mistake := keyMistake(key); mistake != "" {
		p.reject(number, "", mistake)
		return
	}
	if p.count[key] > 1 {
		p.repeated(number, key)
		return
	}
	url, wrong := weburl.Canonical(value, p.grammar.defaultScheme)
	switch {
	case wrong != "" && wrong != weburl.BadScheme && wrong != weburl.Mistyped && separatorInHost.MatchString(value):
		wrong = commaInHost
	case wrong != weburl.HasUser && pairInPath.MatchString(value):
		wrong = joinedPairs
	}
	if wrong != "" {
		p.reject(number, key, wrong)
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
		p.reject(number, key, repeatedKey)
	}
}

func (p *parser) reject(number int, key, mistake string) {
	shown := key
	if mistake == weburl.HasUser && p.broken {
		shown = "" // it may be the part of a password after a space
	}
	p.request.reject(Problem{Key: key, Mistake: mistake, Text: p.text(number, shown, mistake)})
}

// text returns the sentence about a pair.
func (p *parser) text(number int, key, mistake string) string {
	where := fmt.Sprintf("annotation %s, pair %d", shortName(p.request.Annotation), number)
	if key != "" {
		where += " (key " + key + ")"
	}
	what, found := advice[mistake]
	if !found {
		what = adviceOther
	}
	return where + ": " + mistake + "; " + what
}

// keyMistake returns the mistake in a key, or "".
func keyMistake(key string) string {
	switch {
	case len(validation.IsConfigMapKey(key)) == 0:
		return ""
	case strings.ContainsFunc(key, weburl.Invisible):
		return invisibleKey
	case quoteStart.MatchString(key):
		return quotedPair
	case strings.Trim(key, keyCharacters) != "":
		return oddKey
	case len(key) > validation.DNS1123SubdomainMaxLength:
		return longKey
	}
	return dottedKey
}

// shortName returns an annotation key without its prefix.
func shortName(annotation string) string {
	_, name, _ := strings.Cut(annotation, "/")
	return name
}
