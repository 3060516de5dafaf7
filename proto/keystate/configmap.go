package keystate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// ConfigMap is what the metadata of a ConfigMap shows to one installation.
type ConfigMap struct {
	UID types.UID
	// Request is the content of the annotations, and Invalid the error if they are invalid.
	Request annotation.Request
	Invalid error
	// Status has the entries of this installation, and Others has the entries of other installations. Both are empty
	// if the status is Unreadable.
	Status, Others status.Status
	Unreadable     bool
	// Owners are unknown if managedFields are unreadable.
	Owners annotation.Owners
}

// Read returns what metadata shows to an installation with this grammar.
func Read(g *annotation.Grammar, m *metav1.ObjectMeta) ConfigMap {
	c := ConfigMap{UID: m.UID}
	c.Request, c.Invalid = g.ParseObject(m)
	written, err := status.Parse(m.Annotations[annotation.StatusKey])
	c.Status, c.Others = written.Split(g, c.Request, m.Annotations)
	c.Unreadable = err != nil
	c.Owners, _ = annotation.ParseOwners(m.ManagedFields)
	return c
}

// Concerns reports whether a key is annotated or in the status.
func (c *ConfigMap) Concerns(key string) bool {
	_, written := c.Status.Keys[key]
	_, asked := c.Request.URL(key)
	return written || asked
}

// Shown returns what the ConfigMap shows about a key.
func (c *ConfigMap) Shown(key string) *View {
	return &View{UID: c.UID, Entry: c.Status.Keys[key], Owner: c.Owners.Of(key), OtherAsker: c.Others.Askers()[key]}
}
