package v1alpha1

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// Asks returns the annotations of the Watcher's ConfigMap that request its sources. The pairs are in
// the annotation key, such as x-kv8s.io/curl-me-that. Without sources there are none.
func (w *Watcher) Asks(key string) map[string]string {
	asked := map[string]string{}
	if len(w.Spec.Sources) == 0 {
		return asked
	}
	sources := slices.Clone(w.Spec.Sources)
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Key, b.Key) })
	var pairs, digests, rules, selections, intervals []string
	if w.Spec.Interval != "" {
		intervals = append(intervals, w.Spec.Interval)
	}
	for _, s := range sources {
		pairs = append(pairs, s.Key+"="+s.URL)
		if s.SHA256 != "" {
			digests = append(digests, s.Key+"="+s.SHA256)
		}
		for _, r := range s.Expect {
			rules = append(rules, s.Key+"="+r.Rule)
		}
		if s.Select != "" {
			selections = append(selections, s.Key+"="+s.Select)
		}
		if s.Interval != "" {
			intervals = append(intervals, s.Key+"="+s.Interval)
		}
	}
	asked[key] = strings.Join(pairs, " ")
	options := map[string]string{
		annotation.SHA256Name: strings.Join(digests, " "), annotation.RefreshName: strings.Join(intervals, " "),
		annotation.ExpectName: strings.Join(rules, "\n"), annotation.SelectName: strings.Join(selections, "\n"),
		annotation.NowName: w.Now(key),
	}
	if w.Spec.Suspend {
		options[annotation.SuspendName] = strconv.FormatBool(true)
	}
	for name, value := range options {
		if value != "" {
			asked[prefix(key)+name] = value
		}
	}
	return asked
}

// Now returns the value of a Watcher's annotation curl-now, with the prefix of key. A long one is replaced by its
// digest.
func (w *Watcher) Now(key string) string {
	return annotation.Now(w.Annotations[prefix(key)+annotation.NowName])
}

// prefix returns the prefix of an annotation, with its slash.
func prefix(key string) string { return key[:strings.Index(key, "/")+1] }
