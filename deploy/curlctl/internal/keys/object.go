package keys

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// Object is the metadata of a ConfigMap with one of our annotations.
type Object struct {
	// Metadata has the owners only of its annotated keys and of the keys in its status.
	keystate.Metadata

	// Ignored says why the watcher ignores the object (empty: it does not).
	Ignored string
	// Problem explains the invalid annotations.
	Problem string
}

// Objects has the objects by namespace and name. The Key of each map key is empty.
type Objects map[pipeline.Key]Object

// ReadObjects reads the ConfigMaps of a namespace and name (empty: all) with one of our annotations.
func ReadObjects(ctx context.Context, from *cluster.Client, namespace, name string) (Objects, error) {
	objects := Objects{}
	err := from.EachConfigMap(ctx, namespace, name, func(m *metav1.PartialObjectMetadata) { objects.Add(&m.ObjectMeta) })
	if err != nil {
		return nil, err
	}
	return objects, nil
}

// Add adds a ConfigMap if it has one of our annotations.
func (o Objects) Add(meta *metav1.ObjectMeta) {
	if object := readObject(meta, annotation.DefaultProtected()); object.Request.Present || object.Problem != "" {
		o[pipeline.Key{Namespace: meta.Namespace, Name: meta.Name}] = object
	}
}

// grammar returns the grammar of the default annotations.
//
//nolint:gochecknoglobals // immutable
var grammar = sync.OnceValues(func() (*annotation.Grammar, error) { return annotation.New(annotation.Defaults()) })

// ReadObject parses and checks the metadata of a ConfigMap like the watcher with these protected namespaces.
func ReadObject(meta *metav1.ObjectMeta, protected []string) Object {
	object := readObject(meta, protected)
	if len(object.Request.Rules) > 0 {
		object.Request = object.Request.Checked()
		object.explain()
	}
	return object
}

// explain sets the problem.
func (o *Object) explain() {
	mistakes := o.Request
	mistakes.Present = true // people also want to see the mistakes of an object that asks for nothing
	o.Problem = mistakes.ProblemText(o.Invalid)
}

// readObject parses the metadata of a ConfigMap. It takes mistakes in expressions from the status, because compiling
// those of all ConfigMaps takes long.
func readObject(meta *metav1.ObjectMeta, protected []string) Object {
	parser, err := grammar()
	if err != nil {
		return Object{Problem: err.Error()}
	}
	object := Object{Metadata: keystate.ReadMetadata(parser, meta)}
	object.explain()
	if p := object.Status.Problem; p != nil && len(object.Request.Rules) > 0 {
		object.Problem = p.Message
	}
	object.Owners = object.Owners.Only(object.Names)
	switch {
	case object.Invalid != nil:
	case !object.Request.Present:
		object.Ignored = "it has no annotation " + annotation.DefaultKey
	case object.Request.Suspended:
		object.Ignored = "it is suspended"
	case meta.Labels[annotation.IgnoreLabel] == annotation.IgnoreValue:
		object.Ignored = "it has the label " + annotation.IgnoreLabel + "=" + annotation.IgnoreValue
	case annotation.Protects(protected, meta.Namespace, meta.Name):
		object.Ignored = "it is protected (--protected-namespaces)"
	}
	return object
}

// Spec returns the request for a pair of the annotation.
func (o *Object) Spec(pair annotation.Pair) keystate.Spec {
	spec := keystate.SpecOf(o.Request, pair)
	spec.Ignored = o.Ignored
	return spec
}

// Keys returns the keys of a namespace and name (empty: all) as the objects alone show them, without NATS.
func (o Objects) Keys(namespace, name string, now time.Time) []Key {
	return o.unpublished(namespace, name, nil, nil, now)
}

func (o Objects) unpublished(
	namespace, name string, wanted map[pipeline.Key]bool, streams *keystate.Streams, now time.Time,
) (all []Key) {
	for at, object := range o {
		if (namespace == "" || namespace == at.Namespace) && (name == "" || name == at.Name) {
			all = append(all, object.unpublished(at, wanted, streams, now)...)
		}
	}
	return all
}

// unpublished returns the annotated keys without a want, and an entry with an empty key if an annotation is
// invalid. Streams is nil if they were not read.
func (o *Object) unpublished(
	at pipeline.Key, wanted map[pipeline.Key]bool, streams *keystate.Streams, now time.Time,
) (all []Key) {
	if o.Problem != "" && (o.Ignored == "" || !o.Request.Present) {
		c := keystate.Of(keystate.Spec{Invalid: o.Problem}, &keystate.View{}, nil, now)
		if p := o.Status.Problem; p != nil {
			c.Since = p.Since
		}
		all = append(all, Key{ConfigMapKey: ConfigMapKey(at), Request: Request{UID: string(o.UID)}, Condition: c})
	}
	for _, pair := range o.Request.Pairs {
		at.Key = pair.Key
		if wanted[at] {
			continue
		}
		state := keystate.Of(o.Spec(pair), o.View(pair.Key), streams, now)
		if _, ruled := o.Request.Rules[pair.Key]; ruled && o.Status.Problem != nil && state.Reason == keystate.Unpublished {
			continue // the problem is a mistake in its rules, which only the watcher compiles
		}
		all = append(all, Key{
			ConfigMapKey: ConfigMapKey(at), Request: Request{UID: string(o.UID), URL: URL(pair.URL)}, Condition: state,
			Host: sentence.Host(pair.URL), Refresh: formatInterval(o.Request.Interval(pair.Key)),
		})
	}
	return all
}
