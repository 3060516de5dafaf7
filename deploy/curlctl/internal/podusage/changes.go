package podusage

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Changes are when the keys of a ConfigMap last changed, to the second, as far as
// that is known. A change may be earlier than stated, and never later.
type Changes struct {
	keys map[string]time.Time
	all  time.Time
}

// Of returns when the last of some keys changed; without keys, of all.
func (c Changes) Of(keys []string) time.Time {
	if len(keys) == 0 {
		return c.all
	}
	var last time.Time
	for _, key := range keys {
		last = later(last, c.keys[key])
	}
	return last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// ChangesOf reads them: of a key that was fetched from the status annotation, of the
// others from the record of who last wrote them, which is as late as any write of
// that manager. Keeper's record is bounded by when the content of its Watcher
// changed; nil: the ConfigMap is of none.
func ChangesOf(m *metav1.PartialObjectMetadata, w *watchv1.Watcher) Changes {
	c := Changes{keys: map[string]time.Time{}}
	parsed, _ := status.Parse(m.Annotations[annotation.StatusKey]) // one that cannot be read counts as none
	for _, entry := range m.ManagedFields {
		var fields annotation.KeyFields
		if entry.Time == nil || entry.Subresource != "" || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, named := range []annotation.Fields{fields.Data, fields.BinaryData} {
			for key := range named.Names() {
				at := entry.Time.Time
				fetched, found := parsed.Keys[key]
				switch {
				case entry.Manager == annotation.FieldManager && found && fetched.Written() && !fetched.Copied(m.UID):
					at = fetched.FetchedAt
				case entry.Manager == watchv1.FieldManager && w != nil && w.Status.ChangedAt != nil && w.Status.ChangedAt.Time.Before(at):
					at = w.Status.ChangedAt.Time
				}
				c.keys[key] = later(c.keys[key], at)
				c.all = later(c.all, at)
			}
		}
	}
	if w != nil && w.Status.ChangedAt != nil { // a key that left it is in no record
		c.all = later(c.all, w.Status.ChangedAt.Time)
	}
	return c
}
