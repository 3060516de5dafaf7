// Package status parses and formats the status annotation, in which the writer reports: compact
// JSON by key of the ConfigMap.
//
//	{"mydata":{"url":"https://data.example.com","sha256":"…","size":12,
//	 "changedAt":"2026-01-02T03:04:05Z","uidMark":"0b0e8a63","fence":"1767323045000.7"}}
//
// Problems with the annotations themselves have the key *, which no ConfigMap has:
//
//	{"*":{"error":"InvalidAnnotation",
//	 "message":"annotation value 'not correct' does not match expected format key=url",
//	 "since":"2026-01-02T03:04:05Z"}}
//
// The status is also the writer's memory. The fence identifies results that are older than the
// object's content. The rest tells the watcher which keys are in sync when it, or NATS, starts
// without state. Anybody who may edit the ConfigMap may edit the status, so only Parse makes its
// form trustworthy.
package status

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// ErrMalformed means that a value is not a status; treat it as empty.
var ErrMalformed = errors.New("malformed status annotation")

// MaxBytes is the maximum length of a value for Parse. The API server allows as much for all
// annotations of an object, names and values together.
const MaxBytes = 256 << 10

// MaxEntries is the maximum number of entries: one for each key in an annotation, one for each key
// that an edit has just removed, and one for the object.
const MaxEntries = 2*annotation.MaxPairs + 1

// maxProblemBytes is the maximum length of the message of a Problem, which has a few sentences.
const maxProblemBytes = 4 * maxTextBytes

// ObjectKey is the key of the entry about the whole object. No ConfigMap has such a key.
const ObjectKey = "*"

// Status is the state of the keys of one ConfigMap.
type Status struct {
	// Keys holds one entry for each key that was ever requested and not removed since. Parse never
	// returns nil.
	Keys map[string]Entry
	// Problem with the annotations of the object, or nil. It is immutable.
	Problem *ObjectProblem
}

// ObjectProblem describes annotations that are not followed.
type ObjectProblem struct {
	// Error is the reason, as in Events.
	Error string `json:"error"`
	// Message has the sentences of the Events.
	Message string `json:"message,omitempty"`
	// Since is when the problem was first seen, to the second.
	Since time.Time `json:"since,omitzero"`
	// Annotation is the main annotation of the object, as in Entry.
	Annotation string `json:"annotation,omitempty"`
}

// Parse parses the value of the status annotation. An empty value gives an empty status. It ignores
// unknown fields, and keys that are invalid in a ConfigMap, because later versions may use them. An
// error wraps ErrMalformed, and the status is then empty and usable.
func Parse(value string) (Status, error) {
	empty := Status{Keys: map[string]Entry{}}
	if value == "" {
		return empty, nil
	}
	if len(value) > MaxBytes {
		return empty, fmt.Errorf("%w: %d bytes, more than %d", ErrMalformed, len(value), MaxBytes)
	}
	parsed, err := parse(json.NewDecoder(strings.NewReader(value)))
	if err != nil {
		return empty, err
	}
	return parsed, nil
}

// errNoObject means that the value is not a JSON object.
var errNoObject = fmt.Errorf("%w: not a JSON object", ErrMalformed)

// parse reads a JSON object, or null. It stops after MaxEntries, because a user may write any number.
func parse(decoder *json.Decoder) (Status, error) {
	parsed := Status{Keys: map[string]Entry{}}
	first, err := decoder.Token()
	if err != nil || first != nil && first != json.Delim('{') {
		return parsed, errNoObject
	}
	for n := 1; first != nil && decoder.More(); n++ {
		if n > MaxEntries {
			return parsed, fmt.Errorf("%w: more than %d entries", ErrMalformed, MaxEntries)
		}
		name, err := decoder.Token()
		key, isKey := name.(string)
		if err != nil || !isKey {
			return parsed, errNoObject
		}
		if err := parsed.parseMember(key, decoder); err != nil {
			return parsed, err
		}
	}
	if first != nil {
		if _, err := decoder.Token(); err != nil { // the closing brace
			return parsed, errNoObject
		}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) { // anything after the object
		return parsed, errNoObject
	}
	return parsed, nil
}

// parseMember reads the value of a key.
func (s *Status) parseMember(key string, decoder *json.Decoder) error {
	if len(validation.IsConfigMapKey(key)) > 0 {
		var text json.RawMessage
		if decoder.Decode(&text) != nil {
			return errNoObject
		}
		if key == ObjectKey {
			s.Problem = parseProblem(text)
		}
		return nil
	}
	var entry Entry
	if decoder.Decode(&entry) != nil {
		return fmt.Errorf("%w: key %s: not an entry", ErrMalformed, key)
	}
	if err := entry.check(); err != nil {
		return fmt.Errorf("%w: key %s: %w", ErrMalformed, key, err)
	}
	entry.Error = reason(entry.Error)
	s.Keys[key] = entry.normal()
	return nil
}

// reason returns one of the known reasons. Text from users and reasons of later versions become the
// generic one.
func reason(text string) string {
	if text == "" {
		return ""
	}
	return failure.Reason(failure.ClassOf(text))
}

// parseProblem parses the entry of the object, or returns nil.
func parseProblem(text json.RawMessage) *ObjectProblem {
	p := new(ObjectProblem)
	if json.Unmarshal(text, p) != nil || p.Error == "" || outOfRange(p.Since) || len(p.Message) > maxProblemBytes {
		return nil
	}
	p.Error, p.Since, p.Annotation = reason(p.Error), seconds(p.Since), asker(p.Annotation)
	return p
}

// String returns the value of the status annotation: compact JSON with sorted keys, the same text
// for the same state. It is empty if there is neither a key nor a problem. The annotation is then
// removed.
func (s Status) String() string {
	if len(s.Keys) == 0 && s.Problem == nil {
		return ""
	}
	normal := make(map[string]any, len(s.Keys)+1)
	if s.Problem != nil {
		normal[ObjectKey] = s.Problem
	}
	for key, entry := range s.Keys {
		normal[key] = entry.normal()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // people read the URLs
	_ = encoder.Encode(normal)   // fails, and writes nothing, only for a time after the year 9999
	return string(bytes.TrimRight(text.Bytes(), "\n"))
}

// otherInstallation is the Entry.UIDMark of an entry that another installation wrote: its fence is of another stream.
const otherInstallation = "elsewhere"

// Split separates our entries from the entries of other installations, which name an annotation that g does not accept.
// If the object no longer has that annotation, and r asks for the key, the entry is ours, as if it was copied from
// another object.
func (s Status) Split(
	g *annotation.Grammar, r annotation.Request, annotations map[string]string,
) (own, others Status) {
	own = s.Clone()
	asks := func(asker string) bool {
		_, legacy := annotations[annotation.LegacyKey]
		_, found := annotations[cmp.Or(asker, annotation.DefaultKey)]
		return found || asker == "" && legacy
	}
	for key, entry := range s.Keys {
		switch {
		case g.Accepts(entry.Annotation):
		case asks(entry.Annotation), !r.Mentions(key):
			delete(own.Keys, key)
			if others.Keys == nil {
				others.Keys = map[string]Entry{}
			}
			others.Keys[key] = entry
		default:
			entry.UIDMark = otherInstallation
			own.Keys[key] = entry
		}
	}
	if p := s.Problem; p != nil && !g.Accepts(p.Annotation) && asks(p.Annotation) {
		own.Problem, others.Problem = nil, p
	}
	return own, others
}

// Askers returns the annotation that asked for each key, and, as ObjectKey, the one that the problem is about. It is
// nil if s is empty.
func (s Status) Askers() map[string]string {
	if len(s.Keys) == 0 && s.Problem == nil {
		return nil
	}
	askers := map[string]string{}
	for key, entry := range s.Keys {
		askers[key] = cmp.Or(entry.Annotation, annotation.DefaultKey)
	}
	if s.Problem != nil {
		askers[ObjectKey] = cmp.Or(s.Problem.Annotation, annotation.DefaultKey)
	}
	return askers
}

// With returns s and the entries of others.
func (s Status) With(others Status) Status {
	s = s.Clone()
	maps.Copy(s.Keys, others.Keys)
	s.Problem = cmp.Or(others.Problem, s.Problem)
	return s
}

// Clone returns a copy that can be changed without changing s.
func (s Status) Clone() Status {
	clone := Status{Keys: maps.Clone(s.Keys), Problem: s.Problem}
	if clone.Keys == nil {
		clone.Keys = map[string]Entry{}
	}
	return clone
}
