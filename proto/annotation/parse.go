package annotation

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ParseObject parses the annotations of a ConfigMap as Parse does, and adds a problem for each label
// that should be an annotation.
func (g *Grammar) ParseObject(o metav1.Object) (Request, error) {
	request, err := g.Parse(o.GetAnnotations())
	request.Problems = append(request.Problems, g.mislabeled(o.GetLabels())...)
	return request, err
}

// Parse parses the annotations of one ConfigMap.
//
// Without an accepted annotation, the Request has at most Problems. If a whole value is unusable,
// Parse returns an error, which is one sentence for an Event, and a Request that has only Present,
// Annotation and, if it could be parsed, Suspended. A pair that breaks a rule becomes one of the
// Problems. The other pairs still count.
func (g *Grammar) Parse(annotations map[string]string) (Request, error) {
	key, value, found := g.Find(annotations)
	if !found {
		return Request{Problems: g.unknownNames(annotations)}, nil
	}
	request := Request{Present: true, Annotation: key}
	suspended, err := g.suspended(annotations)
	if err != nil {
		return request, err
	}
	request.Suspended = suspended
	refused := request

	if request.Pairs, request.Problems, err = g.pairs(key, value); err != nil {
		return refused, err
	}
	var adjusted []Problem
	if adjusted, err = g.refresh(annotations, &request); err != nil {
		return refused, err
	}
	if request.SHA256, err = g.digests(annotations, request); err != nil {
		return refused, err
	}
	if err = g.expressions(annotations, &request); err != nil {
		return refused, err
	}
	request.Now = g.now(annotations)
	request.Problems = slices.Concat(request.Problems, adjusted, g.ignored(annotations, key, value),
		g.unknownNames(annotations))
	return request, nil
}

// pairs parses the value of the main annotation. A field that is not a pair makes the boundaries of
// its neighbours unclear, so the whole value is rejected. A pair that breaks a rule is rejected
// alone.
func (g *Grammar) pairs(annotation, value string) ([]Pair, []Problem, error) {
	fields, excess := split(value)
	if excess != "" {
		return nil, nil, tooLong(annotation, excess)
	}
	if len(fields) == 0 {
		return nil, nil, invalidPairs(value)
	}
	p := &parser{grammar: g, annotation: annotation, count: map[string]int{}, seen: map[string]int{}}
	for _, field := range fields {
		key, _, found := strings.Cut(field, "=")
		if !found || key == "" || strings.ContainsAny(key, ":?#@") { // a part of a URL
			return nil, nil, invalidPairs(value)
		}
		p.count[key]++
	}
	for i, field := range fields {
		key, url, _ := strings.Cut(field, "=")
		if strings.HasSuffix(field, ",") {
			return nil, nil, p.commaList(i+1, key)
		}
		p.pair(i+1, key, url)
	}
	slices.SortFunc(p.pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	return p.pairs, p.problems, nil
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
