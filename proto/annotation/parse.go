package annotation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// Parse reads the annotations of one ConfigMap.
//
// Without an accepted annotation the answer is an empty Request. A value that
// cannot be used gives a *ValueError and a Request that tells only Present,
// Annotation and, when it could be read, Suspended.
func (g *Grammar) Parse(annotations map[string]string) (Request, error) {
	key, value, found := g.Find(annotations)
	if !found {
		return Request{}, nil
	}
	request := Request{Present: true, Annotation: key}
	suspended, err := g.suspended(annotations)
	if err != nil {
		return request, err
	}
	request.Suspended = suspended
	refused := request

	if request.Pairs, err = g.pairs(key, value); err != nil {
		return refused, err
	}
	if request.Refresh, err = g.refresh(annotations); err != nil {
		return refused, err
	}
	if request.SHA256, err = g.digests(annotations, request); err != nil {
		return refused, err
	}
	request.Now = g.now(annotations)
	return request, nil
}

// pairs reads the value of the main annotation.
func (g *Grammar) pairs(annotation, value string) ([]Pair, error) {
	var pairs []Pair
	cause := eachPair(value, func(key, value string) string {
		url, wrong := weburl.Canonical(value, g.defaultScheme)
		pairs = append(pairs, Pair{Key: key, URL: url})
		return wrong
	})
	if cause == "" && len(pairs) == 0 {
		cause = "the value is empty"
	}
	if cause != "" {
		return nil, invalidPairs(annotation, value, cause)
	}
	slices.SortFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	return pairs, nil
}

// eachPair calls do for each key=value of text and returns what is wrong with
// the first that cannot be used, or nothing.
func eachPair(text string, do func(key, value string) (wrong string)) string {
	if len(text) > MaxValueBytes {
		return fmt.Sprintf("%d bytes, more than %d", len(text), MaxValueBytes)
	}
	fields := strings.Fields(text)
	if len(fields) > MaxPairs {
		return fmt.Sprintf("%d pairs, more than %d", len(fields), MaxPairs)
	}
	seen := make(map[string]bool, len(fields))
	for i, field := range fields {
		key, value, found := strings.Cut(field, "=")
		if !found {
			return fmt.Sprintf("pair %d: no = in it", i+1)
		}
		if len(validation.IsConfigMapKey(key)) > 0 {
			return fmt.Sprintf("pair %d: the key is not legal in a ConfigMap", i+1)
		}
		if seen[key] {
			return fmt.Sprintf("pair %d (key %s): the key is named twice", i+1, key)
		}
		seen[key] = true
		if wrong := do(key, value); wrong != "" {
			return fmt.Sprintf("pair %d (key %s): %s", i+1, key, wrong)
		}
	}
	return ""
}
