package annotation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is the relation of a key to its owners.
type State int

const (
	// Unknown: the API server keeps no usable record for this object. It never
	// kept one (an object created without any field), somebody emptied it, or
	// it cannot be read. The object itself must be read.
	Unknown State = iota
	// None: the key has no owner, as it does not exist.
	None
	// Ours: the writer is among the owners.
	Ours
	// Foreign: only others own the key.
	Foreign
)

// Fingerprints without an owner.
const (
	// FingerprintNone is that of a key that does not exist.
	FingerprintNone = "none"
	// FingerprintUnknown is that of a key in an object without a record of owners,
	// which stays without one when it is written.
	FingerprintUnknown = "unknown"
)

// Ownership is the owner of a key, and since when.
type Ownership struct {
	// State of the key.
	State State
	// Fingerprint names what stands in the way of State being Ours: FingerprintNone,
	// FingerprintUnknown, or manager/operation/time of the newest foreign owner, hashed
	// when that is longer than 64 characters. It changes when a foreign owner
	// writes again. Empty for Ours.
	Fingerprint string
}

// Manager returns the field manager of the newest foreign owner; empty: there is
// none, or its name is too long to be kept. A name may have a slash.
func (o Ownership) Manager() string {
	untimed := o.Fingerprint[:max(strings.LastIndex(o.Fingerprint, "/"), 0)]
	return untimed[:max(strings.LastIndex(untimed, "/"), 0)]
}

// maxFingerprint is the longest fingerprint, in bytes.
const maxFingerprint = 64

// Owners is the record of who owns what in one ConfigMap, read once for all of
// its keys. The zero value knows nothing.
type Owners struct {
	managers []manager
}

// manager is one entry of managedFields that owns something we look at.
type manager struct {
	name      string
	operation metav1.ManagedFieldsOperationType
	time      time.Time
	fields    fields
}

// KeyFields is the part of FieldsV1 with the keys of a ConfigMap (KEP-555).
type KeyFields struct {
	Data       Fields `json:"f:data"`
	BinaryData Fields `json:"f:binaryData"`
}

// Fields are those of a map. Their names carry the prefix "f:"; "." stands for the map
// itself.
type Fields map[string]field

// Names returns the names without the prefix.
func (f Fields) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for field := range f {
			if name, found := strings.CutPrefix(field, "f:"); found && !yield(name) {
				return
			}
		}
	}
}

// fields is the part of FieldsV1 that we look at.
type fields struct {
	KeyFields

	Metadata struct {
		Annotations Fields `json:"f:annotations"`
	} `json:"f:metadata"`
}

// field is the value of a name in FieldsV1, of which nothing is read.
type field struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*field) UnmarshalJSON([]byte) error { return nil }

// ParseOwners reads managedFields. An error, which wraps ErrManagedFields, names
// what cannot be read; Owners then knows nothing and is safe to use.
//
// The API server keeps the record whole or not at all: once emptied, by [{}] or
// because the last recorded field went, it stays empty until somebody applies,
// and then all that exists gets the owner before-first-apply. Only somebody who
// takes out single entries by hand makes None untrue; an annotation that exists
// and that AnnotationChanged does not know is the sign of that.
func ParseOwners(entries []metav1.ManagedFieldsEntry) (Owners, error) {
	owners := Owners{managers: make([]manager, 0, len(entries))}
	for i, entry := range entries {
		raw := entry.FieldsV1.GetRawBytes()
		if entry.Subresource != "" || len(raw) == 0 || string(raw) == "null" {
			continue
		}
		parsed := manager{name: entry.Manager, operation: entry.Operation}
		if entry.Time != nil {
			parsed.time = entry.Time.UTC()
		}
		if entry.FieldsType != "FieldsV1" {
			return Owners{}, fmt.Errorf("%w: entry %d is of type %q", ErrManagedFields, i, entry.FieldsType)
		}
		if err := json.Unmarshal(raw, &parsed.fields); err != nil {
			return Owners{}, fmt.Errorf("%w: entry %d: %w", ErrManagedFields, i, err)
		}
		owners.managers = append(owners.managers, parsed)
	}
	slices.SortFunc(owners.managers, newestFirst)
	return owners, nil
}

// Of returns the owner of a key.
func (o Owners) Of(key string) Ownership {
	if len(o.managers) == 0 {
		return Ownership{State: Unknown, Fingerprint: FingerprintUnknown}
	}
	ownership := Ownership{State: None, Fingerprint: FingerprintNone}
	for _, m := range o.managers {
		if !m.ownsKey(key) {
			continue
		}
		if m.name == FieldManager {
			return Ownership{State: Ours}
		}
		if ownership.State == None {
			ownership = Ownership{State: Foreign, Fingerprint: m.fingerprint()}
		}
	}
	return ownership
}

// Other returns the newest manager but the writer that owns key; empty: there is
// none.
func (o Owners) Other(key string) string {
	for _, m := range o.managers {
		if m.name != FieldManager && m.ownsKey(key) {
			return m.name
		}
	}
	return ""
}

// Only returns what is known of the keys that match, and of no annotation.
// It shares no memory with o: the record of an object may be many times as large
// as what is asked of it.
func (o Owners) Only(match func(key string) bool) Owners {
	kept := Owners{managers: make([]manager, len(o.managers))}
	for i, m := range o.managers {
		kept.managers[i] = manager{name: m.name, operation: m.operation, time: m.time, fields: fields{KeyFields: KeyFields{
			Data: only(m.fields.Data, match), BinaryData: only(m.fields.BinaryData, match),
		}}}
	}
	return kept
}

func only(owned Fields, match func(key string) bool) Fields {
	var kept Fields
	for name := range owned {
		key, _ := strings.CutPrefix(name, "f:")
		if !match(key) {
			continue
		}
		if kept == nil {
			kept = Fields{}
		}
		kept["f:"+strings.Clone(key)] = field{}
	}
	return kept
}

// AnnotationChanged returns when the newest owner of an annotation last wrote,
// to the second; the zero time when it has no known owner, or when that
// one has no time (an apply that changed nothing).
func (o Owners) AnnotationChanged(annotation string) time.Time {
	for _, m := range o.managers {
		if _, owns := m.fields.Metadata.Annotations["f:"+annotation]; owns {
			return m.time
		}
	}
	return time.Time{}
}

// ownsKey reports whether m owns key in data or in binaryData.
func (m manager) ownsKey(key string) bool {
	_, data := m.fields.Data["f:"+key]
	_, binary := m.fields.BinaryData["f:"+key]
	return data || binary
}

// fingerprint identifies this owner and its last write.
func (m manager) fingerprint() string {
	text := m.name + "/" + string(m.operation) + "/" + m.time.Format(time.RFC3339)
	if len(text) <= maxFingerprint {
		return text
	}
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:16])
}

// newestFirst orders managers by time, and by name so that the order is stable.
func newestFirst(a, b manager) int {
	return cmp.Or(
		b.time.Compare(a.time),
		cmp.Compare(a.name, b.name),
		cmp.Compare(a.operation, b.operation),
	)
}
