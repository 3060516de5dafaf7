package annotation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Pair asks for the body of a URL in a key.
type Pair struct {
	// Key of data or binaryData, legal for a ConfigMap.
	Key string
	// URL in canonical form, scheme included, without userinfo and fragment.
	URL string
}

// Request is what the annotations of one ConfigMap ask for.
type Request struct {
	// Present reports that the ConfigMap carries an accepted annotation at all.
	Present bool
	// Annotation is the key of that annotation.
	Annotation string
	// Suspended reports that the ConfigMap is to be left alone, whatever else is asked.
	Suspended bool
	// Pairs are what is asked for, sorted by key, each key once.
	Pairs []Pair
	// Refresh is the interval of regular fetches, within the limits of the
	// grammar; 0: fetch once.
	Refresh time.Duration
	// Now changes when a fetch is wanted at once. Compare it, nothing else.
	Now string
	// SHA256 holds the digests that bodies must have, 64 lower-case hexadecimal
	// digits by key. The annotation names every key of it.
	SHA256 map[string]string
	// Problems are what is wrong with annotations of which the rest is followed,
	// in the order in which they are found.
	Problems []Problem
}

// Problem is something in the annotations that is not followed, or not as
// written. It holds up nothing else.
type Problem struct {
	// Key of the pair that is refused. The annotation names it, so it is neither
	// fetched nor removed. Empty: there is no such pair, or its key is not legal.
	Key string
	// Rule that is broken. With Key it stays the same when other pairs change.
	Rule string
	// Text is one sentence for an Event: where, which rule, what to do. It
	// carries no part of a URL.
	Text string
	// Refused reports that a pair is not followed at all.
	Refused bool
	// Followed reports that what is written is followed after all, within a limit
	// of the operator or as it may be meant.
	Followed bool
}

// URL returns what is asked for in key.
func (r Request) URL(key string) (string, bool) {
	i, found := slices.BinarySearchFunc(r.Pairs, key, func(p Pair, key string) int {
		return strings.Compare(p.Key, key)
	})
	if !found {
		return "", false
	}
	return r.Pairs[i].URL, true
}

// Names reports whether the annotation names key, in a pair that is followed or
// in one that is refused. A key that it names is not removed.
func (r Request) Names(key string) bool {
	_, asked := r.URL(key)
	return asked || key != "" && slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Key == key })
}

// Problem returns the sentences about what is not followed, joined to one: err of
// Parse, or else those of Problems that are not followed. Empty: all is followed,
// or nothing is asked for. It does not depend on MinRefresh, which the writer does
// not know.
func (r Request) Problem(err error) string {
	if !r.Present {
		return ""
	}
	var texts []string
	if err != nil {
		texts = append(texts, err.Error())
	}
	for _, p := range r.Problems {
		if !p.Followed {
			texts = append(texts, p.Text)
		}
	}
	more := ""
	if n := len(texts) - maxSentences; n > 0 {
		texts, more = texts[:maxSentences], fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(texts, "; also ") + more
}

// maxSentences bounds how long a Problem is.
const maxSentences = 8

// Refuses reports whether a pair is refused.
func (r Request) Refuses() bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Refused })
}
