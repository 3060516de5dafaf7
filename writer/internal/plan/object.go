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
	"github.com/kv8s/curl-me-that/proto/status"
)

// Freshness is how well an object is known.
type Freshness int

const (
	// Assumed: as the watcher saw it when it published the want.
	Assumed Freshness = iota + 1
	// Remembered: as it was after a patch of our own.
	Remembered
	// Live: just read.
	Live
)

// Object is what is known of a ConfigMap. What is not Live is good enough to
// write from, since the patch is bound to its version, but not to give up a
// result for.
type Object struct {
	// Freshness of what follows.
	Freshness Freshness
	// UID and ResourceVersion that a patch is bound to.
	UID             types.UID
	ResourceVersion string
	// Request is what the annotations ask for.
	Request annotation.Request
	// Invalid is why the annotations cannot be parsed.
	Invalid error
	// Ignored: the labels exclude the object.
	Ignored bool
	// Status that the object carries.
	Status status.Status
	// HasStatus: it carries one, readable or not.
	HasStatus bool
	// Owners of its keys, as far as they are asked for or in the status.
	Owners annotation.Owners
	// Applied holds the keys that are no longer asked for and that somebody
	// applied by a client (kubectl apply), who would miss them.
	Applied map[string]bool
	// Values holds the digest of each value by key; nil: not known.
	Values map[string]string
	// Room is how long the status may be, in bytes.
	Room int

	// Obstacle is what the API server has refused this object before.
	Obstacle Obstacle
	// Confirmed holds by key the newest fetch that found what the
	// key holds already. The status does not have it, as nothing was written.
	Confirmed map[string]Confirmation

	// untraced: entries are missing in the record of owners: not even
	// the annotation has one.
	untraced bool
	// drift is what Assumed knows instead of Owners.
	drift map[string]string
}

// Confirmation is a fetch that found what the key holds already.
type Confirmation struct {
	// Fence of its trigger.
	Fence status.Fence
	// At is when its outcome was known.
	At time.Time
}

// overtaking is for how long after a confirmation a result with an older fence
// may still come in: the longest fetch, and clocks of fetchers that differ.
const overtaking = time.Minute

// overtook reports whether the confirmation is newer than an item. An older fence
// that was observed much later is no late result: the stream was restored from a
// snapshot and gives out its sequences once more.
func (c Confirmation) overtook(i Item) bool {
	return c.Fence.Newer(i.Fence) && !i.observed().After(c.At.Add(overtaking))
}

// Obstacle is why values of an object cannot be written. What remains possible
// is to record that in its status.
type Obstacle int

const (
	// NoObstacle is known.
	NoObstacle Obstacle = iota
	// Immutable: the ConfigMap is marked so.
	Immutable
	// TooLarge: the ConfigMap would exceed the limit of the API.
	TooLarge
	// Rejected: the API server refuses the change, such as an admission webhook.
	Rejected
	// NoRoom: the other annotations leave none for the status.
	NoRoom
)

// Decoder reads objects.
type Decoder struct {
	// Grammar reads annotations.
	Grammar *annotation.Grammar
	// Selector selects the objects that may be written.
	Selector labels.Selector
}

// Decode returns what is known from the metadata of a ConfigMap.
func (d Decoder) Decode(m *metav1.ObjectMeta, freshness Freshness) *Object {
	o := &Object{
		Freshness: freshness, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Ignored: !d.Selector.Matches(labels.Set(m.Labels)),
		Room:    status.MaxBytes - len(annotation.StatusKey),
	}
	o.Request, o.Invalid = d.Grammar.ParseObject(m)
	text, has := m.Annotations[annotation.StatusKey]
	o.HasStatus = has
	// A status that cannot be read is as good as none, and is replaced.
	o.Status, _ = status.Parse(text)
	o.Owners, _ = annotation.ParseOwners(m.ManagedFields)
	asked := func(key string) bool {
		_, written := o.Status.Keys[key]
		_, asked := o.Request.URL(key)
		return written || asked
	}
	o.untraced = o.Request.Present && o.Owners.AnnotationChanged(o.Request.Annotation).IsZero()
	o.Owners = o.Owners.Only(asked)
	o.Applied = applied(m.Annotations[corev1.LastAppliedConfigAnnotation], func(key string) bool {
		_, found := o.Request.URL(key)
		return !found && asked(key)
	})
	for name, value := range m.Annotations {
		if name != annotation.StatusKey {
			o.Room -= len(name) + len(value)
		}
	}
	return o
}

// applied returns the keys that concern us in the annotation in which a client
// keeps what it has applied. Of text that cannot be read nothing is known.
func applied(text string, concerns func(key string) bool) map[string]bool {
	var last struct {
		Data       map[string]json.RawMessage `json:"data"`
		BinaryData map[string]json.RawMessage `json:"binaryData"`
	}
	if json.Unmarshal([]byte(text), &last) != nil {
		return nil
	}
	var keys map[string]bool
	for _, in := range []map[string]json.RawMessage{last.Data, last.BinaryData} {
		for key := range in {
			if !concerns(key) {
				continue
			}
			if keys == nil {
				keys = map[string]bool{}
			}
			keys[key] = true
		}
	}
	return keys
}

// Assume returns what is known of an object from the wants of items, if that is
// enough to write without reading: they were all seen at the same version, and
// the watcher had no doubt about who owns the keys.
func Assume(items []Item) (*Object, bool) {
	first := items[0].Result.GetWant()
	o := &Object{
		Freshness:       Assumed,
		UID:             types.UID(first.GetUid()),
		ResourceVersion: first.GetResourceVersion(),
		Request:         annotation.Request{Present: true},
		HasStatus:       first.GetStatus() != "",
		Room:            status.MaxBytes,
		drift:           map[string]string{},
	}
	if o.ResourceVersion == "" {
		return nil, false
	}
	for _, item := range items {
		want := item.Result.GetWant()
		drift := want.GetDrift()
		if want.GetReadFirst() || want.GetUid() != first.GetUid() || want.GetResourceVersion() != o.ResourceVersion ||
			want.GetStatus() != first.GetStatus() || drift != "" && drift != annotation.FingerprintNone || item.OfObject() {
			return nil, false
		}
		if url, known := o.Request.URL(item.Key.Key); known {
			if url != want.GetUrl() || o.drift[item.Key.Key] != drift {
				return nil, false
			}
			continue
		}
		o.drift[item.Key.Key] = drift
		o.Request.Pairs = append(o.Request.Pairs, annotation.Pair{Key: item.Key.Key, URL: want.GetUrl()})
		slices.SortFunc(o.Request.Pairs, func(a, b annotation.Pair) int { return cmp.Compare(a.Key, b.Key) })
	}
	var err error
	o.Status, err = status.Parse(first.GetStatus())
	return o, err == nil
}

// Unrecorded reports whether the API server keeps no record of owners for the object
// and would not begin one at a patch: it never had a field to record, or
// the record was emptied.
func (o *Object) Unrecorded() bool {
	return o.Freshness == Live && o.Owners.Of("").State == annotation.Unknown
}

// owner returns the owner of key. An assumed object has no record of owners: the
// watcher, which has one, asserts that the key is ours or does not exist.
func (o *Object) owner(key string) annotation.Ownership {
	if o.Freshness != Assumed {
		owner := o.Owners.Of(key)
		if owner.State == annotation.None && o.untraced {
			owner.State = annotation.Unknown
		}
		return owner
	}
	if o.drift[key] == annotation.FingerprintNone {
		return annotation.Ownership{State: annotation.None, Fingerprint: annotation.FingerprintNone}
	}
	return annotation.Ownership{State: annotation.Ours}
}

// managed reports whether the object asks for anything in a way that can be
// understood, and is not suspended or excluded.
func (o *Object) managed() bool { return o.Invalid == nil && !o.Ignored && !o.Request.Suspended }

// asks reports whether the object asks for that URL in key, and for no other
// digest.
func (o *Object) asks(key, url, digest string) bool {
	asked, found := o.Request.URL(key)
	if !found || asked != url || !o.managed() {
		return false
	}
	demanded := o.Request.SHA256[key]
	return demanded == "" || digest == "" || demanded == digest
}
