package annotated

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/kv8s/curl-me-that/proto/status"
)

// Entries is an immutable form of status.Status for the cache. A slice takes less memory than a map, because most
// objects have one key and a map has room for eight.
type Entries struct {
	byKey   []keyed // sorted by key
	problem *status.ObjectProblem
}

type keyed struct {
	key string
	status.Entry
}

// maxTexts is the maximum length of the texts of all entries that are kept, and otherURL replaces other URLs.
const (
	maxTexts = 16 << 10
	otherURL = "-"
)

// EntriesOf returns the entries of a status. If urls is set, URLs share memory with its equal ones. Then texts of the
// last keys are dropped once all are too long, and any other URL becomes a mark, because it only has to differ.
func EntriesOf(s status.Status, urls func(key string) (string, bool)) Entries {
	if len(s.Keys) == 0 {
		return Entries{problem: s.Problem}
	}
	byKey, texts := make([]keyed, 0, len(s.Keys)), 0
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		entry := s.Keys[key]
		if urls != nil {
			url, _ := urls(key)
			why := entry.Why()
			texts += len(why.Message) + len(why.WaitsFor)
			for _, u := range []*string{&entry.URL, &entry.ErrorURL} {
				if *u == url {
					*u = url // of the annotation
					continue
				}
				texts += len(*u)
				if texts > maxTexts && *u != "" {
					*u = otherURL
				}
			}
			if texts > maxTexts {
				entry.Explanation = nil
			}
		}
		entry.Annotation = unique.Make(entry.Annotation).Value()
		byKey = append(byKey, keyed{unique.Make(key).Value(), entry})
	}
	return Entries{byKey: byKey, problem: s.Problem}
}

// Len returns the number of entries.
func (e Entries) Len() int { return len(e.byKey) }

// Keys returns the keys with an entry, sorted.
func (e Entries) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range e.byKey {
			if !yield(e.byKey[i].key) {
				return
			}
		}
	}
}

// Problem returns the message about the annotations, if any.
func (e Entries) Problem() string {
	if e.problem == nil {
		return ""
	}
	return e.problem.Message
}

// Of returns the entry of a key, or the zero value.
func (e Entries) Of(key string) status.Entry {
	at, found := slices.BinarySearchFunc(e.byKey, key,
		func(k keyed, key string) int { return strings.Compare(k.key, key) })
	if !found {
		return status.Entry{}
	}
	return e.byKey[at].Entry
}

// Status returns all entries.
func (e Entries) Status() status.Status {
	s := status.Status{Keys: make(map[string]status.Entry, len(e.byKey)), Problem: e.problem}
	for _, k := range e.byKey {
		s.Keys[k.key] = k.Entry
	}
	return s
}
