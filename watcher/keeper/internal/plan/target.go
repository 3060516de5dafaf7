package plan

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
	// Digest is the digest of the object that keeper last applied.
	Digest Digest
	// Fields is the digest of the fields that keeper owns, as in Plan (zero: none).
	Fields Digest
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
	shown := keystate.Read(c.grammar, &m.ObjectMeta)
	t := &Target{
		Meta: informer.MetaOf(m), Label: m.Labels[watchv1.WatcherLabel],
		Digest:  ParseDigest(m.Annotations[watchv1.AppliedAnnotation]),
		Entries: annotated.EntriesOf(shown.Status, nil), Others: shown.Others.Askers(),
		Owners: shown.Owners.Only(shown.Concerns),
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

// fieldsOf returns the digest of the fields of one entry of managedFields.
func fieldsOf(entry metav1.ManagedFieldsEntry) Digest {
	var o owned
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &o); err != nil {
		return Digest{} // as if keeper owned nothing, so it applies again
	}
	return Fields{
		Data: o.Data.Names(), BinaryData: o.BinaryData.Names(), Labels: o.Metadata.Labels.Names(),
		Annotations: o.Metadata.Annotations.Names(), Owners: slices.Values(uids(o.Metadata.Owners)),
	}.Digest()
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

// Digest replaces text that is only compared, which saves memory: keeper caches several per Watcher.
type Digest [16]byte

// DigestOf returns the digest of a value whose encoding has a stable order.
func DigestOf(parts ...any) Digest {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(parts); err != nil {
		return Digest{} // impossible for maps, text and times
	}
	return Digest(sum.Sum(nil)[:len(Digest{})])
}

// Fields are the names of the fields of a ConfigMap, by section.
type Fields struct{ Data, BinaryData, Labels, Annotations, Owners iter.Seq[string] }

// Digest returns the digest of the sets of names.
func (f Fields) Digest() Digest {
	return DigestOf(slices.Sorted(f.Data), slices.Sorted(f.BinaryData), slices.Sorted(f.Labels),
		slices.Sorted(f.Annotations), slices.Sorted(f.Owners))
}

// ParseDigest parses a digest (zero if the text is invalid).
func ParseDigest(text string) (d Digest) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(d) {
		d = Digest(raw)
	}
	return d
}

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }
