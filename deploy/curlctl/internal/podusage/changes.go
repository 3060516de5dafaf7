package podusage

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Changes has the last change of each key of a ConfigMap, to the second. A change may be earlier than recorded,
// but not later.
type Changes struct {
	keys map[string]time.Time
	all  time.Time
}

// Of returns the last change of any of the keys (empty: all).
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

// ChangesOf takes the changes of fetched keys from the status annotation, and of other keys from managedFields,
// which record the last write of each manager. If there is a Watcher, its status limits the keeper's entry.
func ChangesOf(m *metav1.PartialObjectMetadata, w *watchv1.Watcher) Changes {
	c := Changes{keys: map[string]time.Time{}}
	bounded := func(at time.Time) bool {
		return w != nil && w.Status.ChangedAt != nil && w.Status.ChangedAt.Time.Before(at)
	}
	parsed, _ := status.Parse(m.Annotations[annotation.StatusKey]) // empty if unreadable
	for _, entry := range m.ManagedFields {
		var fields annotation.KeyFields
		if entry.Time == nil || entry.Subresource != "" || entry.FieldsV1 == nil ||
			json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, named := range []annotation.Fields{fields.Data, fields.BinaryData} {
			for key := range named.Names() {
				at := entry.Time.Time
				fetched, found := parsed.Keys[key]
				switch {
				case entry.Manager == annotation.FieldManager && found && fetched.Written() && !fetched.Copied(m.UID):
					at = fetched.FetchedAt
				case entry.Manager == watchv1.FieldManager && bounded(at):
					at = w.Status.ChangedAt.Time
				}
				c.keys[key] = later(c.keys[key], at)
				c.all = later(c.all, at)
			}
		}
	}
	if w != nil && w.Status.ChangedAt != nil { // removed keys have no entry
		c.all = later(c.all, w.Status.ChangedAt.Time)
	}
	return c
}
