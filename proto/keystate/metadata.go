package keystate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Metadata is what the metadata of a ConfigMap shows to one installation.
type Metadata struct {
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

// ReadMetadata returns what metadata shows to an installation with this grammar.
func ReadMetadata(g *annotation.Grammar, m *metav1.ObjectMeta) Metadata {
	shown := Metadata{UID: m.UID}
	shown.Request, shown.Invalid = g.ParseObject(m)
	written, err := status.Parse(m.Annotations[annotation.StatusKey])
	shown.Status, shown.Others = written.Split(g, shown.Request, m.Annotations)
	shown.Unreadable = err != nil
	shown.Owners, _ = annotation.ParseOwners(m.ManagedFields)
	return shown
}

// Names reports whether a key is annotated or in the status.
func (m *Metadata) Names(key string) bool {
	_, written := m.Status.Keys[key]
	_, asked := m.Request.URL(key)
	return written || asked
}

// View returns what the metadata shows about a key.
func (m *Metadata) View(key string) *View {
	return &View{UID: m.UID, Entry: m.Status.Keys[key], Owner: m.Owners.Of(key), OtherAsker: m.Others.Askers()[key]}
}
