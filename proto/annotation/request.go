package annotation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// Pair asks for the body of a URL in a key.
type Pair struct {
	// Key of data or binaryData, valid for a ConfigMap.
	Key string
	// URL in canonical form, scheme included, without userinfo and fragment.
	URL string
}

// Request is the parsed content of the annotations of one ConfigMap.
type Request struct {
	// Present reports that the ConfigMap has an accepted annotation at all.
	Present bool
	// Annotation is the key of that annotation.
	Annotation string
	// Suspended reports that the ConfigMap is excluded for now.
	Suspended bool
	// AllowHTML reports that a key with another body may become an HTML page.
	AllowHTML bool
	// Pairs are sorted by key. Each key appears once.
	Pairs []Pair
	// Refresh is the refresh interval, within the limits of the grammar (0 means fetch once).
	Refresh time.Duration
	// Intervals holds the refresh intervals of keys with their own.
	Intervals map[string]time.Duration
	// Now changes when the user wants a fetch at once. Only compare it.
	Now string
	// SHA256 holds the required digests, 64 lower-case hexadecimal digits by key. Each key has a pair,
	// accepted or rejected.
	SHA256 map[string]string
	// Rules holds the rules and the selection by key.
	Rules map[string]rule.Set
	// Problems lists the mistakes in annotations that are otherwise followed, in order of
	// appearance, at most MaxProblems. Omitted is the number of others that are not WatcherOnly.
	Problems []Problem
	Omitted  int
	// Rejected lists the valid keys of rejected pairs, also of those whose Problem is omitted.
	Rejected []string
}

// Problem is a part of the annotations that is not followed, or not as written. It does not affect
// the rest.
type Problem struct {
	// Key of the rejected pair. Because the annotation names it, it is neither fetched nor removed.
	// It is empty if there is no such pair, or if the key is not valid.
	Key string
	// Mistake identifies what is wrong. Together with Key it stays the same when other pairs change.
	Mistake string
	// Text is one sentence for an Event: where, which mistake, what to do. It contains no part of a
	// URL.
	Text string
	// Rejected reports that a pair is not followed at all.
	Rejected bool
	// Expression reports that a rule or a selection is the cause.
	Expression bool
	// Adjusted reports that the annotation is followed within an operator's limit.
	Adjusted bool
	// WatcherOnly reports an adjustment by a flag that only the watcher has.
	WatcherOnly bool
}

// URL returns the URL for key.
func (r Request) URL(key string) (string, bool) {
	i, found := slices.BinarySearchFunc(r.Pairs, key, func(p Pair, key string) int {
		return strings.Compare(p.Key, key)
	})
	if !found {
		return "", false
	}
	return r.Pairs[i].URL, true
}

// Interval returns the refresh interval of key (0 means fetch once).
func (r Request) Interval(key string) time.Duration {
	if interval, found := r.Intervals[key]; found {
		return interval
	}
	return r.Refresh
}

// Refreshes reports whether any key has an interval.
func (r Request) Refreshes() bool {
	return slices.ContainsFunc(r.Pairs, func(p Pair) bool { return r.Interval(p.Key) > 0 })
}

// Mentions reports whether the annotation has a pair for key, accepted or rejected. Such a key is never
// removed.
func (r Request) Mentions(key string) bool {
	_, asked := r.URL(key)
	return asked || slices.Contains(r.Rejected, key)
}

// ProblemText joins the sentences about everything that is not followed: err of Parse, or else the
// Problems that are not WatcherOnly, so that watcher and writer get the same text. It is empty if
// there are none.
func (r Request) ProblemText(err error) string {
	if !r.Present {
		return ""
	}
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	for _, p := range r.Problems {
		if !p.WatcherOnly {
			texts = append(texts, p.Text)
		}
	}
	more := ""
	if r.Omitted > 0 {
		more = fmt.Sprintf("; and %d more", r.Omitted)
	}
	return strings.Join(texts, "; also ") + more
}

// MaxProblems is the maximum number of Problems of an object, because a user may make any number of mistakes.
const MaxProblems = 8

// add adds a problem. Those that are WatcherOnly go last and are omitted first, so that watcher and
// writer keep the same others.
func (r *Request) add(p Problem) {
	at := len(r.Problems)
	for !p.WatcherOnly && at > 0 && r.Problems[at-1].WatcherOnly {
		at--
	}
	r.Problems = slices.Insert(r.Problems, at, p)
	if len(r.Problems) <= MaxProblems {
		return
	}
	if !r.Problems[MaxProblems].WatcherOnly {
		r.Omitted++
	}
	r.Problems = r.Problems[:MaxProblems]
}

// reject rejects the pair of a key ("" if it is not valid).
func (r *Request) reject(p Problem) {
	if p.Key != "" {
		r.Pairs = slices.DeleteFunc(r.Pairs, func(pair Pair) bool { return pair.Key == p.Key })
		r.Rejected = append(r.Rejected, p.Key)
	}
	p.Rejected = true
	r.add(p)
}

// orphan adds a problem for a part of an option whose key has no pair, often because the pair was removed.
func (r *Request) orphan(option, where, key string) {
	text := "annotation " + option + where + ": key " + key + " is not requested, so this part has no effect; " +
		"remove it, or add the pair"
	r.add(Problem{Mistake: text, Text: text})
}

// Rejects reports whether a pair is rejected.
func (r Request) Rejects() bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Rejected })
}

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
			r.add(Problem{Mistake: text, Text: text, Adjusted: true})
		}
	}
	return r, nil
}
