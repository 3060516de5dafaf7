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

// OwnerState tells who owns a key.
type OwnerState int

const (
	// Unknown: the object has no usable managedFields. It was created without any field, somebody
	// emptied them, or they cannot be parsed. Or the API server merged the entry of the owner, perhaps
	// ours, into AncientManager. Only the value shows whether it is ours.
	Unknown OwnerState = iota
	// None: the key has no owner, because it does not exist.
	None
	// Ours: the writer is among the owners.
	Ours
	// Foreign: only others own the key.
	Foreign
)

// Fingerprints of keys without an owner.
const (
	// FingerprintNone means that the key does not exist.
	FingerprintNone = "none"
	// FingerprintUnknown means that the object has no managedFields. It still has none after a
	// write.
	FingerprintUnknown = "unknown"
)

// Ownership tells who owns a key, and since when.
type Ownership struct {
	// State of the key.
	State OwnerState
	// Fingerprint identifies the reason why State is not Ours: FingerprintNone, FingerprintUnknown,
	// or manager/operation/time of the newest foreign owner, hashed if that is longer than 64
	// characters. It changes when a foreign owner writes again in a later second. It is empty for Ours.
	Fingerprint string
}

// unsettled ends the fingerprint of a check within its second.
const unsettled = "~"

// Unsettled returns the fingerprint for a value that was checked in a second that may not be over: the
// owner may write again without a change of Fingerprint. (Git calls such files racily clean.)
func (o Ownership) Unsettled() string {
	if !Settled(o.Fingerprint) {
		return o.Fingerprint
	}
	return o.Fingerprint + unsettled
}

// Settled reports whether a fingerprint has a second, and proves a value that was checked after it.
func Settled(fingerprint string) bool {
	return !slices.Contains([]string{"", FingerprintNone, FingerprintUnknown}, fingerprint) &&
		!strings.HasSuffix(fingerprint, unsettled)
}

// Manager returns the field manager of the newest foreign owner, or "" if there is none or its name
// is too long to keep. A name may contain a slash.
func (o Ownership) Manager() string {
	untimed := o.Fingerprint[:max(strings.LastIndex(o.Fingerprint, "/"), 0)]
	return untimed[:max(strings.LastIndex(untimed, "/"), 0)]
}

// maxFingerprint is the maximum length of a fingerprint, in bytes.
const maxFingerprint = 64

// Owners holds the parsed managedFields of one ConfigMap. The zero value knows no owners.
type Owners struct {
	managers []manager
}

// manager is one entry of managedFields, reduced to the fields we need.
type manager struct {
	name      string
	operation metav1.ManagedFieldsOperationType
	time      time.Time
	fields    fields
}

// KeyFields is the part of FieldsV1 about the keys of a ConfigMap (KEP-555).
type KeyFields struct {
	Data       Fields `json:"f:data"`
	BinaryData Fields `json:"f:binaryData"`
}

// Fields are the fields of a map. Their names carry the prefix "f:"; "." stands for the map itself.
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

// fields is the part of FieldsV1 that we read.
type fields struct {
	KeyFields

	Metadata struct {
		Annotations Fields `json:"f:annotations"`
	} `json:"f:metadata"`
}

// field is the value of a name in FieldsV1. Its content is skipped.
type field struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*field) UnmarshalJSON([]byte) error { return nil }

// ParseOwners parses managedFields. An error wraps ErrManagedFields and names the invalid part; the
// returned Owners is then empty and safe to use.
//
// The API server keeps managedFields completely or not at all. Once they are empty, because of [{}]
// or because the last recorded field was removed, they stay empty until somebody applies; then
// everything that exists is owned by before-first-apply. None is wrong only if somebody removed
// single entries by hand. A sign of that is an existing annotation that AnnotationChanged does not
// find.
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
		switch {
		case ownership.State != None:
		case m.name == AncientManager:
			ownership = Ownership{State: Unknown, Fingerprint: m.fingerprint()}
		default:
			ownership = Ownership{State: Foreign, Fingerprint: m.fingerprint()}
		}
	}
	return ownership
}

// Other returns the newest known manager other than the writer that owns key, or "" if there is none.
func (o Owners) Other(key string) string {
	for _, m := range o.managers {
		if m.name != FieldManager && m.name != AncientManager && m.ownsKey(key) {
			return m.name
		}
	}
	return ""
}

// Only returns the owners of the matching keys, without those of annotations. It shares no memory
// with o, because managedFields can be many times as large as the part we need.
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

// AnnotationChanged returns when the newest owner of an annotation last wrote, to the second. It is
// zero if the owner is unknown, or has no time because its apply changed nothing.
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

// newestFirst orders managers by time, then by name to keep the order stable.
func newestFirst(a, b manager) int {
	return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.name, b.name), cmp.Compare(a.operation, b.operation))
}
