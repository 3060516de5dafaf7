package annotation

import (
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
	// Present tells that the ConfigMap carries an accepted annotation at all.
	Present bool
	// Annotation is the key of that annotation.
	Annotation string
	// Suspended tells to leave the ConfigMap alone, whatever else is asked.
	Suspended bool
	// Pairs are what is asked for, sorted by key, each key once.
	Pairs []Pair
	// Refresh is the interval of regular fetches, within the limits of the
	// grammar; 0: fetch once.
	Refresh time.Duration
	// Now changes when a fetch is wanted at once. Compare it, nothing else.
	Now string
	// SHA256 holds the digests that bodies must have, 64 lower-case hexadecimal
	// digits by key. Every key of it is among Pairs.
	SHA256 map[string]string
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
