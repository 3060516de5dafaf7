package annotation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bound limits an object because its namespace exceeds a quota. The zero value is no limit.
type Bound struct {
	// Keys is the maximum number of keys in the namespace, if older ConfigMaps use it up.
	Keys int
	// Stretch is the factor of the refresh intervals, if it is above 1.
	Stretch int
	// Refreshes is the maximum number of refreshes per second in the namespace, and Refreshed the
	// number of its keys with an interval. Only the object that reports the stretch has them.
	Refreshes, Refreshed int
}

// Apply returns the request within the limits, or an error like that of Parse if no key is left.
func (b Bound) Apply(namespace string, r Request, err error) (Request, error) {
	switch {
	case err != nil || r.Suspended || len(r.Pairs) == 0:
		return r, err
	case b.Keys > 0:
		text := fmt.Sprintf("namespace %s asks for more than %d keys and older ConfigMaps come first; "+
			"remove some, or have --namespace-keys raised", namespace, b.Keys)
		return Request{Present: r.Present, Annotation: r.Annotation}, errors.New(text)
	case b.Stretch > 1:
		stretched := func(interval time.Duration) time.Duration { return min(interval*time.Duration(b.Stretch), MaxRefresh) }
		r.Refresh, r.Intervals = stretched(r.Refresh), maps.Clone(r.Intervals)
		for key, interval := range r.Intervals {
			r.Intervals[key] = stretched(interval)
		}
		if b.Refreshed > 0 {
			text := fmt.Sprintf("%s is multiplied by %d in namespace %s; "+
				"its %d refreshed keys ask for more than %d refreshes a second", RefreshName, b.Stretch, namespace, b.Refreshed,
				b.Refreshes)
			r.Problems = slices.Clone(r.Problems)
			r.add(Problem{Rule: text, Text: text, Adjusted: true})
		}
	}
	return r, nil
}
