package annotation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bound is how the other keys of its namespace bound an object. The zero value does not.
type Bound struct {
	// Keys is the maximum of a namespace, if older ConfigMaps use it up.
	Keys int
	// Stretch is what the interval is multiplied by, if it is above 1.
	Stretch int
	// Refreshes is the maximum of a namespace in a second that Refreshed keys exceed, if this
	// object is the one that says so.
	Refreshes, Refreshed int
}

// Apply returns what an object may ask for, and an error like that of Parse if it is nothing.
func (b Bound) Apply(namespace string, r Request, err error) (Request, error) {
	switch {
	case err != nil || r.Suspended || len(r.Pairs) == 0:
		return r, err
	case b.Keys > 0:
		text := fmt.Sprintf("namespace %s asks for more than %d keys and older ConfigMaps come first; "+
			"remove some, or have --namespace-keys raised", namespace, b.Keys)
		return Request{Present: r.Present, Annotation: r.Annotation},
			errors.New(text)
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
			r.Problems = append(slices.Clip(r.Problems), Problem{Rule: text, Text: text, Adjusted: true})
		}
	}
	return r, nil
}
