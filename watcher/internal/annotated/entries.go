package annotated

import (
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/kv8s/curl-me-that/proto/status"
)

// Entries is an immutable form of status.Status with half the memory, because the watcher caches the
// status of all objects.
type Entries struct {
	byKey   []packed // sorted by key
	problem *status.Problem
}

// packed is a status.Entry with rare fields moved out, binary digests and marks, and times in
// seconds.
type packed struct {
	key, url  string
	sha256    [32]byte
	size      int64
	fetchedAt int64
	fence     status.Fence
	object    [8]byte
	rare      *rare
	written   bool
	binary    bool
	marked    bool
}

type rare struct {
	failure, url, drift, object, rules, annotation string
	since                                          int64
	attempts                                       uint32
	gaveUp                                         bool
	why                                            *status.Explanation
}

// maxTexts is the maximum length of the texts of all entries that are kept, and elsewhere replaces other URLs.
const (
	maxTexts  = 16 << 10
	elsewhere = "-"
)

// EntriesOf packs a status. URLs share memory with equal ones of urls, if set. Then, if texts are too long, those of
// the last keys are dropped, and of a URL only matters that it is not the requested one.
func EntriesOf(s status.Status, urls func(key string) (string, bool)) Entries {
	if len(s.Keys) == 0 {
		return Entries{problem: s.Problem}
	}
	byKey, texts := make([]packed, 0, len(s.Keys)), 0
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		entry := s.Keys[key]
		if urls != nil {
			url, _ := urls(key)
			why := entry.Why()
			texts += len(why.Message) + len(why.WaitsFor)
			for _, u := range []*string{&entry.URL, &entry.ErrorURL} {
				if *u == url {
					*u = url // of the annotation
				} else if texts += len(*u); texts > maxTexts && *u != "" {
					*u = elsewhere
				}
			}
			if texts > maxTexts {
				entry.Explanation = nil
			}
		}
		byKey = append(byKey, pack(key, entry))
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
		func(p packed, key string) int { return strings.Compare(p.key, key) })
	if !found {
		return status.Entry{}
	}
	return e.byKey[at].entry()
}

// Status unpacks all entries.
func (e Entries) Status() status.Status {
	s := status.Status{Keys: make(map[string]status.Entry, len(e.byKey)), Problem: e.problem}
	for i := range e.byKey {
		s.Keys[e.byKey[i].key] = e.byKey[i].entry()
	}
	return s
}

func pack(key string, e status.Entry) packed {
	p := packed{
		key: unique.Make(key).Value(), url: e.URL, size: e.Size, fetchedAt: e.FetchedAt.Unix(), fence: e.Fence,
		written: e.Written(), binary: e.Binary, marked: len(e.Object) == len(packed{}.object),
	}
	_, _ = hex.Decode(p.sha256[:], []byte(e.SHA256)) // status.Parse has validated it
	other := rare{
		failure: e.Error, url: e.ErrorURL, drift: e.Drift, object: e.Object, rules: e.Rules,
		annotation: unique.Make(e.Annotation).Value(), since: e.Since.Unix(), attempts: e.Attempts, gaveUp: e.GaveUp,
		why: e.Explanation,
	}
	if p.marked {
		copy(p.object[:], e.Object)
		other.object = ""
	}
	if other != (rare{since: time.Time{}.Unix()}) {
		p.rare = &other
	}
	return p
}

func (p *packed) entry() status.Entry {
	e := status.Entry{
		URL: p.url, Size: p.size, FetchedAt: time.Unix(p.fetchedAt, 0).UTC(), Binary: p.binary, Fence: p.fence,
	}
	if p.written {
		e.SHA256 = hex.EncodeToString(p.sha256[:])
	}
	if p.marked {
		e.Object = string(p.object[:])
	}
	if r := p.rare; r != nil {
		e.Error, e.ErrorURL, e.Drift, e.Rules, e.Annotation = r.failure, r.url, r.drift, r.rules, r.annotation
		e.Since, e.Attempts, e.GaveUp, e.Explanation = time.Unix(r.since, 0).UTC(), r.attempts, r.gaveUp, r.why
		if !p.marked {
			e.Object = r.object
		}
	}
	return e
}
