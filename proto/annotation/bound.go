package annotation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Bounded returns the request within the limits of an object whose namespace exceeds a quota (nil: none), or, if
// no key is left, an error in the form of Parse's.
func Bounded(b *v1.Bound, namespace string, r Request, err error) (Request, error) {
	switch {
	case err != nil || r.Suspended || len(r.Pairs) == 0:
		return r, err
	case b.GetKeys() > 0:
		text := fmt.Sprintf("namespace %s asks for more than %d keys and older ConfigMaps come first; "+
			"remove some, or have --namespace-keys raised", namespace, b.GetKeys())
		return Request{Present: r.Present, Annotation: r.Annotation}, errors.New(text)
	case b.GetStretch() > 1:
		stretched := func(interval time.Duration) time.Duration {
			return min(interval*time.Duration(b.GetStretch()), MaxRefresh)
		}
		r.Refresh, r.Intervals = stretched(r.Refresh), maps.Clone(r.Intervals)
		for key, interval := range r.Intervals {
			r.Intervals[key] = stretched(interval)
		}
		if b.GetRefreshed() > 0 {
			text := fmt.Sprintf("%s is multiplied by %d in namespace %s; "+
				"its %d refreshed keys ask for more than %d refreshes a second", RefreshName, b.GetStretch(), namespace,
				b.GetRefreshed(), b.GetRefreshes())
			r.Problems = slices.Clone(r.Problems)
			r.add(Problem{Rule: text, Text: text, Adjusted: true})
		}
	}
	return r, nil
}
