// Package compile turns a Watcher into the ConfigMap that it asks for. It is pure.
package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// maxStaticBytes is what a ConfigMap takes.
const maxStaticBytes = 1 << 20

// Compiler compiles Watchers.
type Compiler struct {
	grammar *annotation.Grammar
	// key is the annotation that is written.
	key string
}

// New returns a compiler that writes annotations as a grammar reads them.
func New(grammar *annotation.Grammar) *Compiler {
	return &Compiler{grammar: grammar, key: grammar.Keys()[0]}
}

// Plan is what one Watcher comes to. It is not changed after it was made.
type Plan struct {
	// Watcher is its name.
	Watcher types.NamespacedName
	UID     types.UID
	// Generation that the plan is of, and Created when the Watcher was.
	Generation int64
	Created    time.Time
	// Target is the ConfigMap.
	Target types.NamespacedName
	// Suspended: nothing is fetched or repaired.
	Suspended bool
	// Now is the value of curl-now.
	Now string
	// Sources that are asked for, sorted by key.
	Sources []Source
	// Static is the number of static keys, and StaticSHA256 a digest over them.
	Static       int
	StaticSHA256 string
	// Object is what is applied.
	Object Object
	// Fields are the fields of Object, as OwnedFields names them.
	Fields string
	// Sidecar that pods may get; nil: none.
	Sidecar *Sidecar
	// Problem keeps the Watcher from being applied; nil: nothing does.
	Problem *Problem
}

// Sidecar is what pods get, shared with the Watcher.
type Sidecar struct {
	Container *corev1.Container
	// Volume that the pod gets with it; nil: none.
	Volume *corev1.Volume
}

// Source is a URL that is asked for.
type Source struct {
	// Key of the ConfigMap.
	Key string
	// URL in canonical form.
	URL string
	// SHA256 that the body must have; empty: any.
	SHA256 string
}

// Problem is something that only an edit mends.
type Problem struct {
	// Reason of the condition.
	Reason string
	// Message is a sentence: what, where, what to do.
	Message string
}

// Object is the ConfigMap as it is applied.
type Object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   Metadata          `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
}

// Metadata of an Object.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// ResourceVersion binds an apply to the version that was looked at.
	ResourceVersion string                  `json:"resourceVersion,omitempty"`
	Labels          map[string]string       `json:"labels"`
	Annotations     map[string]string       `json:"annotations"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
}

// Digest is that of what is applied.
func (p *Plan) Digest() string { return p.Object.Metadata.Annotations[watchv1.AppliedAnnotation] }

// absent is a version that no object ever has: etcd gives 1 to none. An apply with
// it makes an object, and conflicts with one that exists.
const absent = 1

// Body returns what to send in order to apply the plan to that version of the
// ConfigMap and no other; 0: to none, so that the ConfigMap is made. One that
// somebody else makes or changes meanwhile is not touched: the apply conflicts.
func (p *Plan) Body(version uint64) ([]byte, error) {
	object := p.Object
	object.Metadata.ResourceVersion = strconv.FormatUint(cmp.Or(version, absent), 10)
	body, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode ConfigMap %s: %w", p.Target, err)
	}
	return body, nil
}

// Compile compiles a Watcher. The plan shares the static data with it.
func (c *Compiler) Compile(w *watchv1.Watcher) *Plan {
	p := &Plan{
		Watcher: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, UID: w.UID,
		Generation: w.Generation, Created: w.CreationTimestamp.Time,
		Target:    types.NamespacedName{Namespace: w.Namespace, Name: w.ConfigMapName()},
		Suspended: w.Spec.Suspend,
		Now:       w.Now(c.key),
		Static:    len(w.Spec.ConfigData) + len(w.Spec.ConfigBinaryData),
	}
	p.Object = Object{
		APIVersion: "v1", Kind: "ConfigMap",
		Metadata: Metadata{
			Name: p.Target.Name, Namespace: p.Target.Namespace,
			Labels:          map[string]string{watchv1.WatcherLabel: watchv1.LabelValue(w.Name)},
			Annotations:     w.Asks(c.key),
			OwnerReferences: owner(w),
		},
		Data: w.Spec.ConfigData, BinaryData: w.Spec.ConfigBinaryData,
	}
	if w.Spec.Container != nil {
		p.Sidecar = &Sidecar{Container: w.Spec.Container, Volume: w.Spec.Volume}
	}
	p.StaticSHA256 = digest(p.Object.Data, p.Object.BinaryData)
	p.Object.Metadata.Annotations[watchv1.AppliedAnnotation] = digest(p.Object)
	p.Fields = fields(p.Object)
	p.Problem = tooLarge(w)
	if problem := c.sources(p); p.Problem == nil {
		p.Problem = problem
	}
	return p
}

// sources reads back what the annotations ask for, as the watcher will.
func (c *Compiler) sources(p *Plan) *Problem {
	request, err := c.grammar.Parse(p.Object.Metadata.Annotations)
	if err != nil {
		return &Problem{Reason: watchv1.ReasonInvalidSource, Message: err.Error()}
	}
	for _, problem := range request.Problems {
		if problem.Refused {
			return &Problem{Reason: watchv1.ReasonInvalidSource, Message: problem.Text}
		}
	}
	for _, pair := range request.Pairs {
		p.Sources = append(p.Sources, Source{Key: pair.Key, URL: pair.URL, SHA256: request.SHA256[pair.Key]})
	}
	return nil
}

// owner lets the ConfigMap be garbage-collected with the Watcher, unless it is
// retained.
func owner(w *watchv1.Watcher) []metav1.OwnerReference {
	if w.Spec.Target.DeletionPolicy == watchv1.Retain {
		return nil
	}
	return []metav1.OwnerReference{*metav1.NewControllerRef(w, watchv1.GroupVersion().WithKind(watchv1.Kind))}
}

func tooLarge(w *watchv1.Watcher) *Problem {
	total := 0
	for _, value := range w.Spec.ConfigData {
		total += len(value)
	}
	for _, value := range w.Spec.ConfigBinaryData {
		total += len(value)
	}
	if total <= maxStaticBytes {
		return nil
	}
	return &Problem{Reason: watchv1.ReasonTooLarge, Message: fmt.Sprintf(
		"the static data has %d bytes, and a ConfigMap takes %d; move some of it to another Watcher", total, maxStaticBytes)}
}

// digest of what is encoded in a stable order.
func digest(parts ...any) string {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(parts); err != nil {
		return "" // maps and strings can be encoded
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// fields names what is applied.
func fields(o Object) string {
	f := &Fields{}
	f.Add(Data, maps.Keys(o.Data))
	f.Add(BinaryData, maps.Keys(o.BinaryData))
	f.Add(Labels, maps.Keys(o.Metadata.Labels))
	f.Add(Annotations, maps.Keys(o.Metadata.Annotations))
	for _, owner := range o.Metadata.OwnerReferences {
		f.Add(Owners, slices.Values([]string{string(owner.UID)}))
	}
	return f.String()
}
