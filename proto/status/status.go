package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// MaxBytes is the longest value that Parse reads: what the API server allows
// for all annotations of an object, names and values together.
const MaxBytes = 256 << 10

// MaxEntries is the maximum number of entries: those of the keys that an annotation
// asks for and of those that an edit has just taken out of it, and that of the object.
const MaxEntries = 2*annotation.MaxPairs + 1

// ObjectKey stands in the place of a key for what is about the object as a whole.
// No ConfigMap has such a key, and a reader that does not know it ignores it.
const ObjectKey = "*"

// Status is the state of the keys of one ConfigMap.
type Status struct {
	// Keys holds one entry for each key that was ever asked for and has not
	// been taken out since. Never nil in what Parse returns.
	Keys map[string]Entry
	// Problem with the annotations of the object; nil: there is none. It is not
	// changed once it was made.
	Problem *Problem
}

// Problem is why annotations are not followed, or not all of them.
type Problem struct {
	// Error is the reason, as in Events, from the closed set.
	Error string `json:"error"`
	// Message are the sentences of the Events.
	Message string `json:"message,omitempty"`
	// Since is when it was first found, to the second.
	Since time.Time `json:"since,omitzero"`
}

// Parse reads the value of the status annotation. An absent one is empty. It
// ignores fields that it does not know, and keys that no ConfigMap can have:
// later versions may use them. On an error, which wraps ErrMalformed, the
// status is empty and usable.
func Parse(value string) (Status, error) {
	empty := Status{Keys: map[string]Entry{}}
	if value == "" {
		return empty, nil
	}
	if len(value) > MaxBytes {
		return empty, fmt.Errorf("%w: %d bytes, more than %d", ErrMalformed, len(value), MaxBytes)
	}
	raw, err := membersOf(value)
	if err != nil {
		return empty, err
	}
	parsed := Status{Keys: make(map[string]Entry, len(raw))}
	parsed.Problem = parseProblem(raw[ObjectKey])
	for key, text := range raw {
		if len(validation.IsConfigMapKey(key)) > 0 {
			continue
		}
		var entry Entry
		if err := json.Unmarshal(text, &entry); err != nil {
			return empty, fmt.Errorf("%w: key %s: not an entry", ErrMalformed, key)
		}
		if err := entry.check(); err != nil {
			return empty, fmt.Errorf("%w: key %s: %w", ErrMalformed, key, err)
		}
		entry.Error = reason(entry.Error)
		parsed.Keys[key] = entry.normal()
	}
	return parsed, nil
}

// membersOf returns the members of a JSON object, and reads no further than to the
// first one beyond MaxEntries: a user may write as many as fit.
func membersOf(value string) (map[string]json.RawMessage, error) {
	malformed := fmt.Errorf("%w: no JSON object", ErrMalformed)
	decoder := json.NewDecoder(strings.NewReader(value))
	members := map[string]json.RawMessage{}
	switch first, err := decoder.Token(); {
	case err != nil, first != nil && first != json.Delim('{'):
		return nil, malformed
	case first == nil: // null
		return members, atEnd(decoder, malformed)
	}
	for n := 1; decoder.More(); n++ {
		if n > MaxEntries {
			return nil, fmt.Errorf("%w: more than %d entries", ErrMalformed, MaxEntries)
		}
		name, err := decoder.Token()
		key, isKey := name.(string)
		var member json.RawMessage
		if err != nil || !isKey || decoder.Decode(&member) != nil {
			return nil, malformed
		}
		members[key] = member
	}
	if _, err := decoder.Token(); err != nil { // the closing brace
		return nil, malformed
	}
	return members, atEnd(decoder, malformed)
}

// atEnd returns malformed if anything follows what was decoded.
func atEnd(decoder *json.Decoder, malformed error) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return malformed
	}
	return nil
}

// reason returns a reason of the closed set: users may write any text, and a later
// version other reasons, which all read as the generic one.
func reason(text string) string {
	if text == "" {
		return ""
	}
	return pipeline.Reason(pipeline.ClassOf(text))
}

// parseProblem reads the entry of the object; nil: there is none that can be read.
func parseProblem(text json.RawMessage) *Problem {
	p := new(Problem)
	if json.Unmarshal(text, p) != nil || p.Error == "" || outOfRange(p.Since) {
		return nil
	}
	p.Error, p.Since = reason(p.Error), seconds(p.Since)
	return p
}

// written is an entry as it is written. What changedAt repeats under the name
// of what it is, is read from fetchedAt, which older readers know.
type written struct {
	Entry

	ChangedAt time.Time `json:"changedAt,omitzero"`
}

// String returns the value of the status annotation: compact JSON, keys sorted,
// the same text for the same state. It is empty when there is neither a key nor a
// problem, and the annotation is to be removed then.
func (s Status) String() string {
	if len(s.Keys) == 0 && s.Problem == nil {
		return ""
	}
	normal := make(map[string]any, len(s.Keys)+1)
	if s.Problem != nil {
		normal[ObjectKey] = s.Problem
	}
	for key, entry := range s.Keys {
		entry = entry.normal()
		normal[key] = written{Entry: entry, ChangedAt: entry.FetchedAt}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // people read the URLs
	_ = encoder.Encode(normal)   // fails, and writes nothing, for a time beyond the year 9999 alone
	return string(bytes.TrimRight(text.Bytes(), "\n"))
}

// Own returns what a want of a key carries of the status annotation, of which
// text is the value: all of it if no other key has an entry. Else it carries
// nothing, and readFirst reports that the writer has to read the object before
// it writes the annotation: the wants of an object with many keys would repeat
// the entries of all of them.
func (s Status) Own(key, text string) (own string, readFirst bool) {
	for other := range s.Keys {
		if other != key {
			return "", true
		}
	}
	return text, false
}

// Clone returns a copy that can be changed without changing s.
func (s Status) Clone() Status {
	clone := Status{Keys: maps.Clone(s.Keys), Problem: s.Problem}
	if clone.Keys == nil {
		clone.Keys = map[string]Entry{}
	}
	return clone
}
