package annotation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// flag parses an option that is true or false. Empty means absent, here and in the other options, because
// templates produce empty values.
func flag(options map[string]string, name string) (bool, error) {
	value := options[name]
	trimmed := strings.TrimSpace(value)
	if trimmed == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(trimmed)
	if err != nil {
		return false, invalidOption(name, value, "is not true or false")
	}
	return on, nil
}

// refresh parses curl-refresh: a duration for all keys and pairs of key=duration. Durations are
// limited to the allowed range, with a problem if that changes them.
func (g *Grammar) refresh(value string, request *Request) error {
	seen := map[string]bool{}
	for field := range strings.FieldsSeq(value) {
		key, text, keyed := strings.Cut(field, "=")
		if !keyed {
			key, text = "", field
		}
		interval, err := duration.Parse(text)
		switch {
		case err != nil || interval < 0:
			return invalidOption(RefreshName, word(value, field), "is not a duration such as 10m")
		case keyed && !request.Mentions(key):
			request.orphan(RefreshName, "", quotable(key))
			continue
		case seen[key]:
			return invalidOption(RefreshName, word(value, field), "is a second interval for the same key")
		}
		seen[key] = true
		allowed := g.allowed(key, text, interval, request)
		if !keyed {
			request.Refresh = allowed
			continue
		}
		if request.Intervals == nil {
			request.Intervals = map[string]time.Duration{}
		}
		request.Intervals[strings.Clone(key)] = allowed // a substring would keep the annotation in memory
	}
	return nil
}

// allowed limits an interval of curl-refresh to the allowed range, with a problem if that changes it.
func (g *Grammar) allowed(key, text string, interval time.Duration, request *Request) time.Duration {
	allowed := min(max(interval, g.minRefresh), MaxRefresh)
	if interval == 0 || allowed == interval {
		return interval
	}
	limit, used := "below the minimum of ", duration.Format(allowed)
	if allowed < interval {
		limit = "above the maximum of "
	}
	if key != "" {
		key = " of key " + key
	}
	sentence := RefreshName + key + " is " + quotable(text) + ", " + limit + used + "; " + used + " is used"
	request.add(Problem{Mistake: sentence, Text: sentence, Adjusted: true, WatcherOnly: true})
	return allowed
}

// NowValue returns a value of curl-now. One that is too long or not valid UTF-8 is replaced by its digest.
func NowValue(value string) string {
	if len(value) <= MaxNowBytes && utf8.ValidString(value) {
		return value
	}
	digest := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(digest[:])
}

// WithPin returns the value of curl-sha256 after a change of the digest of one key (empty: none). A value that is too
// long is an error.
func WithPin(value, key, digest string) (string, error) {
	pins, excess := split(value)
	if excess != "" {
		return "", errors.New("annotation " + SHA256Name + " has " + excess + "; shorten it first")
	}
	pins = slices.DeleteFunc(pins, func(pin string) bool { return strings.HasPrefix(pin, key+"=") })
	if digest != "" {
		pins = append(pins, key+"="+digest)
	}
	return strings.Join(pins, " "), nil
}

// digests parses curl-sha256. It rejects a digest for a key that is not requested, because its author
// relies on a check that would never happen.
func digests(value string, request Request) (map[string]string, error) {
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	all := make(map[string]string)
	fields, excess := split(value)
	malformed := ""
	if excess != "" {
		malformed = value
	}
	for _, field := range fields {
		key, digest, found := strings.Cut(field, "=")
		raw, err := hex.DecodeString(digest)
		wrong := !found || keyMistake(key) != "" || all[key] != "" || err != nil || len(raw) != sha256.Size
		if wrong && malformed == "" {
			malformed = word(value, field)
		}
		all[key] = strings.ToLower(digest)
	}
	if malformed != "" {
		return nil, invalidOption(SHA256Name, malformed, "does not match expected format key=<64 hexadecimal digits>")
	}
	for key, digest := range all {
		if !request.Mentions(key) {
			return nil, invalidOption(SHA256Name, word(value, key+"="+digest),
				"has a digest for key "+key+", which is not requested")
		}
	}
	return all, nil
}

// expressions parses curl-expect and curl-select, whose lines are key=expression. It does not compile them: see
// Checked.
func expressions(options map[string]string, request *Request) error {
	rules := map[string]rule.Set{}
	for _, name := range []string{ExpectName, SelectName} {
		value := options[name]
		invalid := func(cause string) error { return errors.New("annotation " + name + cause + blocked) }
		if len(value) > rule.MaxAnnotation {
			return invalid(fmt.Sprintf(" has %d bytes, more than %d", len(value), rule.MaxAnnotation))
		}
		for i, line := range strings.Split(value, "\n") {
			if strings.TrimSpace(line) == "" {
				continue
			}
			where := fmt.Sprintf(", line %d", i+1)
			key, text, found := strings.Cut(line, "=")
			key, text = strings.TrimSpace(key), strings.TrimSpace(text)
			switch {
			case !found || keyMistake(key) != "":
				return invalid(where + ": it does not begin with key=")
			case !request.Mentions(key) && name == SelectName:
				request.orphan(name, where, key)
				continue
			case !request.Mentions(key): // its author relies on a check that would never happen
				return invalid(where + ": key " + key + " is not requested")
			}
			if slices.Contains(request.Rejected, key) { // one mistake is enough
				continue
			}
			set := rules[key]
			if mistake := expressionMistake(name, set, request.SHA256[key]); mistake != "" {
				request.reject(Problem{
					Key: key, Mistake: name + ": " + mistake, Expression: true,
					Text: "annotation " + name + where + " (key " + key + "): " + mistake,
				})
				continue
			}
			if name == SelectName {
				set.Select = text
			} else {
				set.Expect = append(set.Expect, text)
			}
			rules[key] = set
		}
	}
	if len(rules) > 0 {
		request.Rules = rules
	}
	return nil
}

// expressionMistake returns the reason why an expression cannot be added to set, or "".
func expressionMistake(name string, set rule.Set, digest string) string {
	switch {
	case name == ExpectName && len(set.Expect) == rule.MaxRules:
		return fmt.Sprintf("the key has more than %d rules", rule.MaxRules)
	case name == SelectName && set.Select != "":
		return "the key appears twice; use each key once"
	case name == SelectName && digest != "":
		return "the key has a digest in " + SHA256Name + ", which is that of the whole body; remove one of them"
	}
	return ""
}

// Checked returns the request without keys that have an unusable expression, because their authors rely on a
// check that would never happen. It compiles the expressions, which may take 100 ms of CPU. A goroutine that
// serves all namespaces must not call it.
func (r Request) Checked() Request {
	checked := r
	checked.Pairs, checked.Problems = slices.Clone(r.Pairs), slices.Clone(r.Problems)
	checked.Rejected = slices.Clone(r.Rejected)
	for _, pair := range r.Pairs {
		if name, where, mistake := firstMistake(r.Rules[pair.Key]); mistake != "" {
			checked.reject(Problem{
				Key: pair.Key, Mistake: name + ": " + mistake, Expression: true,
				Text: "annotation " + name + ", " + where + "key " + pair.Key + ": " + mistake,
			})
		}
	}
	return checked
}

func firstMistake(set rule.Set) (name, where, mistake string) {
	for i, text := range set.Expect {
		if mistake := rule.Mistake(text, true); mistake != "" {
			return ExpectName, fmt.Sprintf("rule %d of ", i+1), mistake
		}
	}
	if set.Select == "" {
		return "", "", ""
	}
	return SelectName, "", rule.Mistake(set.Select, false)
}
