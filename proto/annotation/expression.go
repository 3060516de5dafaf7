package annotation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kv8s/curl-me-that/proto/rule"
)

// expressions parses curl-expect and curl-select, whose lines are key=expression. It does not compile them: see
// Checked.
func expressions(options map[string]string, request *Request) error {
	rules := map[string]rule.Set{}
	for _, name := range []string{ExpectName, SelectName} {
		value := options[name]
		refuse := func(cause string) error { return errors.New("annotation " + name + cause + blocked) }
		if len(value) > rule.MaxAnnotation {
			return refuse(fmt.Sprintf(" has %d bytes, more than %d", len(value), rule.MaxAnnotation))
		}
		for i, line := range strings.Split(value, "\n") {
			if strings.TrimSpace(line) == "" {
				continue
			}
			where := fmt.Sprintf(", line %d", i+1)
			key, text, found := strings.Cut(line, "=")
			key, text = strings.TrimSpace(key), strings.TrimSpace(text)
			switch {
			case !found || keyRule(key) != "":
				return refuse(where + ": it does not begin with key=")
			case !request.Names(key) && name == SelectName:
				request.orphan(name, where, key)
				continue
			case !request.Names(key): // its author relies on a check that would never happen
				return refuse(where + ": key " + key + " is not requested")
			}
			if slices.Contains(request.Rejected, key) { // one mistake is enough
				continue
			}
			set := rules[key]
			if mistake := expressionMistake(name, set, request.SHA256[key]); mistake != "" {
				request.reject(Problem{
					Key: key, Rule: name + ": " + mistake, Expression: true,
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
				Key: pair.Key, Rule: name + ": " + mistake, Expression: true,
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
