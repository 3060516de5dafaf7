package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// Target is the cached part of a Watcher's ConfigMap.
type Target struct {
	informer.Meta
	// Label is the value of watchv1.WatcherLabel (empty if it has none).
	Label string
	// Controller is its controlling owner, if any.
	Controller metav1.OwnerReference
	// Hash is the hash of the object that keeper last applied.
	Hash Hash
	// Fields is the hash of the fields that keeper owns, as in Plan (zero: none).
	Fields Hash
	// Other is the newest field manager other than keeper and the writer.
	Other string
	// Entries has the entries of the status annotation, Others the annotation that asked for each key of another
	// installation (nil: none), and Owners the owners of the annotated keys and of those with an entry.
	Entries annotated.Entries
	Others  map[string]string
	Owners  annotation.Owners
}

// Target returns the cached part of a ConfigMap.
func (c *Compiler) Target(m *metav1.PartialObjectMetadata) *Target {
	shown := keystate.ReadMetadata(c.grammar, &m.ObjectMeta)
	t := &Target{
		Meta: informer.MetaOf(m), Label: m.Labels[watchv1.WatcherLabel],
		Hash:    ParseHash(m.Annotations[watchv1.AppliedAnnotation]),
		Entries: annotated.EntriesOf(shown.Status, nil), Others: shown.Others.Askers(),
		Owners: shown.Owners.Only(shown.Names),
	}
	if controller := metav1.GetControllerOfNoCopy(m); controller != nil {
		t.Controller = metav1.OwnerReference{
			APIVersion: short(controller.APIVersion), Kind: short(controller.Kind),
			Name: short(controller.Name), UID: types.UID(short(string(controller.UID))),
		}
	}
	var newest time.Time
	for _, entry := range m.ManagedFields {
		switch {
		case entry.Manager == watchv1.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == "":
			t.Fields = fieldsOf(entry)
		case entry.Manager != annotation.FieldManager && entry.Time != nil && !entry.Time.Before(&metav1.Time{Time: newest}):
			newest, t.Other = entry.Time.Time, unique.Make(entry.Manager).Value()
		}
	}
	return t
}

// short returns an interned copy of a part of an owner reference, for which Kubernetes has no limit. A longer one than
// any name belongs to nobody.
func short(text string) string {
	if len(text) > validation.DNS1123SubdomainMaxLength {
		text = text[:validation.DNS1123SubdomainMaxLength] + "…"
	}
	return unique.Make(text).Value()
}

// owned is the part of FieldsV1 that keeper applies.
type owned struct {
	annotation.KeyFields

	Metadata struct {
		Labels      annotation.Fields          `json:"f:labels"`
		Annotations annotation.Fields          `json:"f:annotations"`
		Owners      map[string]json.RawMessage `json:"f:ownerReferences"`
	} `json:"f:metadata"`
}

// fieldsOf returns the hash of the fields of one entry of managedFields.
func fieldsOf(entry metav1.ManagedFieldsEntry) Hash {
	var o owned
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &o); err != nil {
		return Hash{} // as if keeper owned nothing, so it applies again
	}
	return Fields{
		Data: o.Data.Names(), BinaryData: o.BinaryData.Names(), Labels: o.Metadata.Labels.Names(),
		Annotations: o.Metadata.Annotations.Names(), Owners: slices.Values(uids(o.Metadata.Owners)),
	}.Hash()
}

// uids returns the uids of owner references, which are named k:{"uid":"…"}.
func uids(fields map[string]json.RawMessage) (found []string) {
	for field := range fields {
		text, isKey := strings.CutPrefix(field, "k:")
		var key struct {
			UID string `json:"uid"`
		}
		if isKey && json.Unmarshal([]byte(text), &key) == nil {
			found = append(found, key.UID)
		}
	}
	return found
}

// Hash replaces text that is only compared, which saves memory: keeper caches several per Watcher.
type Hash [16]byte

// HashOf returns the hash of a value whose encoding has a stable order.
func HashOf(parts ...any) Hash {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(parts); err != nil {
		return Hash{} // impossible for maps, text and times
	}
	return Hash(sum.Sum(nil)[:len(Hash{})])
}

// Fields are the names of the fields of a ConfigMap, by section.
type Fields struct{ Data, BinaryData, Labels, Annotations, Owners iter.Seq[string] }

// Hash returns the hash of the sets of names.
func (f Fields) Hash() Hash {
	return HashOf(slices.Sorted(f.Data), slices.Sorted(f.BinaryData), slices.Sorted(f.Labels),
		slices.Sorted(f.Annotations), slices.Sorted(f.Owners))
}

// ParseHash parses a hash (zero if the text is invalid).
func ParseHash(text string) (d Hash) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(d) {
		d = Hash(raw)
	}
	return d
}

// String returns the hash in hexadecimal.
func (d Hash) String() string { return hex.EncodeToString(d[:]) }
