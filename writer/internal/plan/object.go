package plan

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Freshness says where an object comes from.
type Freshness int

const (
	// FromWant means that the object comes from the watcher's want.
	FromWant Freshness = iota + 1
	// FromPatch means that the object comes from our last patch.
	FromPatch
	// Live means that the object was just read.
	Live
)

// Object is a known ConfigMap. A write may rely on an assumed object: a wrong version only costs a conflict. A result
// is dropped only after reading the live object.
type Object struct {
	// Metadata has the owners only of its annotated keys and of the keys in its status.
	keystate.Metadata

	Freshness Freshness
	// ResourceVersion binds the patch, as the UID does.
	ResourceVersion string
	// Ignored means that the labels exclude the object.
	Ignored bool
	// HasStatus means that the object has a status annotation, even an unreadable one.
	HasStatus bool
	// LastApplied has the keys without an annotation that are in the manifest of the last kubectl
	// apply.
	LastApplied map[string]bool
	// Values has the digest of each value by key. Nil means unknown.
	Values map[string]string
	// Pages has the keys whose value is an HTML page. It is known if Values is.
	Pages map[string]bool
	// Immutable is known if Values is.
	Immutable bool
	// Room is the maximum size of the status, in bytes.
	Room int

	// ownersIncomplete means that not even the annotation has a recorded owner.
	ownersIncomplete bool
	// fingerprints has the fingerprint of each key in the want. It replaces Owners in an assumed object.
	fingerprints map[string]string
}

// Confirmation is a fetch that found the value of its key unchanged.
type Confirmation struct {
	Fence status.Fence
	// At is the time of its outcome.
	At time.Time
}

// maxOvertaking is how much later than a confirmation a result with an older fence may be observed: the
// longest fetch plus the difference between clocks.
const maxOvertaking = time.Minute

// overtook reports whether the confirmation is newer than an item. If an older fence was observed
// much later, the stream was restored from a snapshot and repeats sequences.
func (c Confirmation) overtook(i Item) bool {
	return c.Fence.Newer(i.Fence) && !i.observed().After(c.At.Add(maxOvertaking))
}

// Decoder decodes objects.
type Decoder struct {
	Grammar *annotation.Grammar
	// Selector selects the objects to write.
	Selector labels.Selector
}

// Decode returns the object with this metadata.
func (d Decoder) Decode(m *metav1.ObjectMeta, freshness Freshness) *Object {
	o := &Object{
		Metadata: keystate.ReadMetadata(d.Grammar, m), Freshness: freshness, ResourceVersion: m.ResourceVersion,
		Ignored: !d.Selector.Matches(labels.Set(m.Labels)),
		Room:    status.MaxBytes - len(annotation.StatusKey),
	}
	_, o.HasStatus = m.Annotations[annotation.StatusKey]
	o.ownersIncomplete = o.Request.Present && o.Owners.AnnotationChanged(o.Request.Annotation).IsZero()
	o.Owners = o.Owners.Only(o.Names)
	o.LastApplied = lastApplied(m.Annotations[corev1.LastAppliedConfigAnnotation], func(key string) bool {
		_, asked := o.Request.URL(key)
		return !asked && o.Names(key)
	})
	for name, value := range m.Annotations {
		if name != annotation.StatusKey {
			o.Room -= len(name) + len(value)
		}
	}
	return o
}

// lastApplied returns the relevant keys in the manifest of the last kubectl apply, or nil if it is
// unreadable.
func lastApplied(text string, concerns func(key string) bool) map[string]bool {
	var last struct {
		Data       map[string]json.RawMessage `json:"data"`
		BinaryData map[string]json.RawMessage `json:"binaryData"`
	}
	if json.Unmarshal([]byte(text), &last) != nil {
		return nil
	}
	keys := map[string]bool{}
	for _, in := range []map[string]json.RawMessage{last.Data, last.BinaryData} {
		for key := range in {
			if concerns(key) {
				keys[key] = true
			}
		}
	}
	return keys
}

// FromWants returns the object as the wants of items describe it. It reports whether that is enough for a write
// without a read: all wants have the same version, the watcher knew the owners of the keys, and only one
// annotation can have asked.
func (d Decoder) FromWants(items []Item) (*Object, bool) {
	first := items[0].Result.GetWant()
	keys := d.Grammar.Keys()
	o := &Object{
		Metadata: keystate.Metadata{UID: types.UID(first.GetUid()), Request: annotation.Request{
			Present: true, Annotation: keys[0], Rules: map[string]rule.Set{},
			SHA256: map[string]string{}, Intervals: map[string]time.Duration{},
		}},
		Freshness: FromWant, ResourceVersion: first.GetResourceVersion(), HasStatus: first.GetStatus() != "",
		Room: status.MaxBytes, fingerprints: map[string]string{},
	}
	another := func(key string) bool { return annotation.NameInStatus(key) != annotation.NameInStatus(keys[0]) }
	if o.ResourceVersion == "" || slices.ContainsFunc(keys, another) {
		return nil, false
	}
	for _, item := range items {
		want := item.Result.GetWant()
		fingerprint := want.GetFingerprint()
		if want.GetReadFirst() || want.GetUid() != first.GetUid() || want.GetResourceVersion() != o.ResourceVersion ||
			want.GetStatus() != first.GetStatus() || item.OfObject() ||
			fingerprint != "" && fingerprint != annotation.FingerprintNone {
			return nil, false
		}
		if url, known := o.Request.URL(item.Key.Key); known {
			if url != want.GetUrl() || o.fingerprints[item.Key.Key] != fingerprint {
				return nil, false
			}
			continue
		}
		o.fingerprints[item.Key.Key] = fingerprint
		if rules := rule.SetOf(want); !rules.Empty() {
			o.Request.Rules[item.Key.Key] = rules
		}
		if pin := want.GetSha256(); pin != "" {
			o.Request.SHA256[item.Key.Key], o.Request.Intervals[item.Key.Key] = pin, want.GetRefresh().AsDuration()
		}
		o.Request.Pairs = append(o.Request.Pairs, annotation.Pair{Key: item.Key.Key, URL: want.GetUrl()})
		slices.SortFunc(o.Request.Pairs, func(a, b annotation.Pair) int { return cmp.Compare(a.Key, b.Key) })
	}
	var err error
	o.Status, err = status.Parse(first.GetStatus())
	return o, err == nil
}

// Unrecorded reports whether a live object has no usable managedFields. A patch would not add them.
func (o *Object) Unrecorded() bool {
	return o.Freshness == Live && o.Owners.Of("").State == annotation.Unknown
}

// owner returns the owner of key. For an assumed object, the watcher asserts that the key is ours
// or does not exist.
func (o *Object) owner(key string) annotation.Ownership {
	if o.Freshness != FromWant {
		owner := o.Owners.Of(key)
		if owner.State == annotation.None && o.ownersIncomplete {
			owner.State = annotation.Unknown
		}
		return owner
	}
	if o.fingerprints[key] == annotation.FingerprintNone {
		return annotation.Ownership{State: annotation.None, Fingerprint: annotation.FingerprintNone}
	}
	return annotation.Ownership{State: annotation.Ours}
}

// managed reports whether the annotations are valid, and the object is neither suspended nor
// excluded.
func (o *Object) managed() bool { return o.Invalid == nil && !o.Ignored && !o.Request.Suspended }

// asks reports whether the object is annotated with the URL and the rules of an item, and requires
// no other digest.
func (o *Object) asks(i Item, digest string) bool {
	key := i.Key.Key
	asked, found := o.Request.URL(key)
	annotated, followed := o.Request.Rules[key], rule.SetOf(i.Result.GetWant())
	if !found || asked != i.url() || !o.managed() ||
		annotated.Select != followed.Select || !slices.Equal(annotated.Expect, followed.Expect) {
		return false
	}
	required := o.Request.SHA256[key]
	return required == "" || digest == "" || required == digest
}
