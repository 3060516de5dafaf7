// Package compile compiles a Watcher into its ConfigMap, reads the cached part of that ConfigMap and of pods with a
// sidecar, and computes the status of the Watcher from them. It is pure.
package compile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// maxStaticBytes is the maximum size of a ConfigMap's data, and maxKeptBytes that of the parts of a Watcher that keeper
// caches.
const maxStaticBytes, maxKeptBytes = 1 << 20, 32 << 10

// Compiler compiles Watchers.
type Compiler struct {
	grammar *annotation.Grammar
	// key is the annotation that keeper writes.
	key string
}

// NewCompiler returns a compiler that writes annotations for a grammar.
func NewCompiler(grammar *annotation.Grammar) *Compiler {
	return &Compiler{grammar: grammar, key: grammar.Keys()[0]}
}

// Plan is an immutable description of a Watcher's ConfigMap. It omits the data, up to 1 MiB, because
// keeper caches all plans.
type Plan struct {
	// Watcher is the name of the Watcher.
	Watcher types.NamespacedName
	UID     types.UID
	// Generation and Created come from the metadata of the Watcher.
	Generation int64
	Created    time.Time
	// Target is the ConfigMap.
	Target types.NamespacedName
	// Suspended means that nothing is fetched or repaired.
	Suspended bool
	// CurlNow is the value of curl-now.
	CurlNow string
	// Sources are sorted by key.
	Sources []keystate.Spec
	// Expect has the rules by key, shared with the Watcher.
	Expect map[string][]watchv1.Rule
	// Static is the number of static keys, and StaticSHA256 a hash over them.
	Static       int
	StaticSHA256 Hash
	// Hash is the hash of the applied object, and Fields the hash of its field names.
	Hash, Fields Hash
	// Sidecar is the sidecar for pods (nil if there is none).
	Sidecar *Sidecar
	// Problem prevents the apply (nil if there is none).
	Problem *Problem
	// request has the rules, for Checked.
	request annotation.Request
}

// Checked returns the plan with the problem of the first unusable expression, if there is one. Compiling takes
// long, so only a worker may call it.
func (p *Plan) Checked() *Plan {
	if p.Problem != nil || len(p.request.Rules) == 0 {
		return p
	}
	checked := *p
	checked.Problem = skipped(p.request.Checked())
	return &checked
}

func skipped(request annotation.Request) *Problem {
	for _, problem := range request.Problems {
		if problem.Expression {
			return &Problem{Reason: watchv1.ReasonInvalidExpression, Message: problem.Text}
		}
		if problem.Rejected {
			return &Problem{Reason: watchv1.ReasonInvalidSource, Message: problem.Text}
		}
	}
	return nil
}

// Sidecar is the sidecar for pods, shared with the Watcher.
type Sidecar struct {
	Container *corev1.Container
	// Volume is added to the pod with it (nil if there is none).
	Volume *corev1.Volume
}

// Problem is a problem that only an edit solves.
type Problem struct {
	// Reason of the condition.
	Reason string
	// Message is a sentence: what, where, what to do.
	Message string
}

// absent is a version that no object has, because etcd never assigns 1. An apply with it creates the
// object, or conflicts if the object exists.
const absent = 1

// Body returns the request body that applies a Watcher, and the plan's hash. The apply conflicts unless
// the ConfigMap has this version (0: does not exist).
func (c *Compiler) Body(w *watchv1.Watcher, version uint64) ([]byte, Hash, error) {
	o, hash := c.object(w)
	o.WithResourceVersion(strconv.FormatUint(cmp.Or(version, absent), 10))
	body, err := json.Marshal(o)
	if err != nil {
		return nil, Hash{}, fmt.Errorf("encode ConfigMap %s/%s: %w", w.Namespace, w.ConfigMapName(), err)
	}
	return body, hash, nil
}

// object returns the object to apply and its hash. It shares the static data with the Watcher.
func (c *Compiler) object(w *watchv1.Watcher) (*applycore.ConfigMapApplyConfiguration, Hash) {
	o := applycore.ConfigMap(w.ConfigMapName(), w.Namespace).
		WithLabels(map[string]string{watchv1.WatcherLabel: watchv1.LabelValue(w.Name)}).
		WithAnnotations(w.AnnotationsFor(c.key))
	o.Data, o.BinaryData = w.Spec.ConfigData, w.Spec.ConfigBinaryData
	if w.Spec.Target.DeletionPolicy != watchv1.Retain {
		// The ConfigMap is garbage-collected with the Watcher.
		o.WithOwnerReferences(applymeta.OwnerReference().WithAPIVersion(watchv1.GroupVersion().String()).
			WithKind(watchv1.Kind).WithName(w.Name).WithUID(w.UID).WithController(true).WithBlockOwnerDeletion(true))
	}
	hash := HashOf(o)
	return o.WithAnnotations(map[string]string{watchv1.AppliedAnnotation: hash.String()}), hash
}

// Compile compiles a Watcher.
func (c *Compiler) Compile(w *watchv1.Watcher) *Plan {
	o, hash := c.object(w)
	p := &Plan{
		Watcher: types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, UID: w.UID,
		Generation: w.Generation, Created: w.CreationTimestamp.Time,
		Target:       types.NamespacedName{Namespace: w.Namespace, Name: w.ConfigMapName()},
		Suspended:    w.Spec.Suspend,
		CurlNow:      w.Now(c.key),
		Static:       len(o.Data) + len(o.BinaryData),
		StaticSHA256: HashOf(o.Data, o.BinaryData),
		Hash:         hash,
		Fields:       fields(o),
	}
	p.Problem = tooLarge(w)
	if w.Spec.Container != nil && p.Problem == nil {
		p.Sidecar = &Sidecar{Container: w.Spec.Container, Volume: w.Spec.Volume}
	}
	if problem := c.sources(p, w, o.Annotations); p.Problem == nil {
		p.Problem = problem
	}
	return p
}

// sources parses the annotations as the watcher will.
func (c *Compiler) sources(p *Plan, w *watchv1.Watcher, annotations map[string]string) *Problem {
	request, err := c.grammar.Parse(annotations)
	if err != nil {
		return &Problem{Reason: watchv1.ReasonInvalidSource, Message: err.Error()}
	}
	if problem := skipped(request); problem != nil {
		return problem
	}
	p.request = request
	p.Expect = map[string][]watchv1.Rule{}
	for _, s := range w.Spec.Sources {
		if p.Problem == nil { // not too large
			p.Expect[s.Key] = s.Expect
		}
	}
	request.Suspended = false // a source keeps its state meanwhile
	p.Sources = make([]keystate.Spec, len(request.Pairs))
	for i, pair := range request.Pairs {
		p.Sources[i] = keystate.SpecOf(request, pair)
	}
	return nil
}

func tooLarge(w *watchv1.Watcher) *Problem {
	total := 0
	for _, value := range w.Spec.ConfigData {
		total += len(value)
	}
	for _, value := range w.Spec.ConfigBinaryData {
		total += len(value)
	}
	kept := w.Spec.Container.Size() + w.Spec.Volume.Size()
	for _, s := range w.Spec.Sources {
		for _, r := range s.Expect {
			kept += len(r.Rule) + len(r.Message)
		}
	}
	switch {
	case kept > maxKeptBytes:
		return &Problem{Reason: watchv1.ReasonTooLarge, Message: fmt.Sprintf(
			"the sidecar and the rules have %d bytes, more than %d; put long arguments into a ConfigMap", kept, maxKeptBytes)}
	case total <= maxStaticBytes:
		return nil
	}
	return &Problem{Reason: watchv1.ReasonTooLarge, Message: fmt.Sprintf(
		"the static data has %d bytes, but a ConfigMap holds at most %d; move some of it to another Watcher", total,
		maxStaticBytes)}
}

// fields returns the hash of the names of the applied fields.
func fields(o *applycore.ConfigMapApplyConfiguration) Hash {
	owners := map[string]bool{}
	for _, owner := range o.OwnerReferences {
		owners[string(*owner.UID)] = true
	}
	return Fields{
		Data: maps.Keys(o.Data), BinaryData: maps.Keys(o.BinaryData), Labels: maps.Keys(o.Labels),
		Annotations: maps.Keys(o.Annotations), Owners: maps.Keys(owners),
	}.Hash()
}
