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
	g.mislabeled(o.GetLabels(), &request)
	return request, err
}

// Parse parses the annotations of one ConfigMap.
//
// Without an accepted annotation, the Request has at most Suspended and Problems. If a whole value is
// unusable, Parse returns an error, which is one sentence for an Event, and a Request that has only
// Present, Annotation and, if it could be parsed, Suspended. A pair that breaks a rule becomes one of the
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
	refused := request

	if err = g.pairs(&request, value); err != nil {
		return refused, err
	}
	if request.AllowHTML, err = flag(options, AllowHTMLName); err != nil {
		return refused, err
	}
	if err = g.refresh(options[RefreshName], &request); err != nil {
		return refused, err
	}
	if request.SHA256, err = digests(options[SHA256Name], request); err != nil {
		return refused, err
	}
	if err = expressions(options, &request); err != nil {
		return refused, err
	}
	request.Now = Now(options[NowName])
	g.ignored(annotations, value, &request)
	g.unknownNames(annotations, &request)
	return request, nil
}

// pairs parses the value of the main annotation. A field that is not a pair makes the boundaries of
// its neighbours unclear, so the whole value is rejected. A pair that breaks a rule is rejected
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
