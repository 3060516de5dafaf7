package world

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// manager is the field manager of the specs' own writes.
const manager = "kubectl-edit"

// ConfigMap is a ConfigMap in the namespace of a world.
type ConfigMap struct {
	// Name of the ConfigMap.
	Name  string
	world *World
	// limit is a time limit (0 means the default).
	limit time.Duration
}

// Trait sets a property of a new ConfigMap.
type Trait func(*corev1.ConfigMap)

// Asking requests pairs of key=url.
func Asking(pairs string) Trait { return Annotated(annotation.DefaultKey, pairs) }

// Annotated sets an annotation.
func Annotated(key, value string) Trait {
	return func(o *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value) }
}

// Labelled sets a label.
func Labelled(key, value string) Trait {
	return func(o *corev1.ConfigMap) { metav1.SetMetaDataLabel(&o.ObjectMeta, key, value) }
}

// Holding sets a key in data.
func Holding(key, value string) Trait {
	return func(o *corev1.ConfigMap) {
		if o.Data == nil {
			o.Data = map[string]string{}
		}
		o.Data[key] = value
	}
}

// Immutable makes the ConfigMap immutable.
func Immutable() Trait {
	return func(o *corev1.ConfigMap) { o.Immutable = new(true) }
}

// Create creates a ConfigMap.
func (w *World) Create(ctx context.Context, name string, traits ...Trait) *ConfigMap {
	GinkgoHelper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, trait := range traits {
		trait(object)
	}
	created := suitetest.Must(w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).
		Create(ctx, object, metav1.CreateOptions{FieldManager: manager}))
	w.wrote(ctx, created)
	return &ConfigMap{Name: name, world: w}
}

// Fill serves a page, creates a ConfigMap whose key mydata requests it, and waits until the key has
// the body.
func (w *World) Fill(ctx context.Context, name, body string, traits ...Trait) (*origin.Page, *ConfigMap) {
	GinkgoHelper()
	page := w.Origin.Page("/" + name).Says(body)
	cm := w.Create(ctx, name, append(traits, Asking("mydata="+page.URL()))...)
	cm.EventuallyHasData(ctx, "mydata", body)
	return page, cm
}

// Named returns a ConfigMap that something else creates.
func (w *World) Named(name string) *ConfigMap { return &ConfigMap{Name: name, world: w} }

// Annotate sets an annotation.
func (c *ConfigMap) Annotate(ctx context.Context, key, value string) {
	GinkgoHelper()
	c.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// Unannotate removes an annotation.
func (c *ConfigMap) Unannotate(ctx context.Context, key string) {
	GinkgoHelper()
	c.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: nil}}})
}

// Ask sets the annotation curl-me-that.
func (c *ConfigMap) Ask(ctx context.Context, pairs string) {
	GinkgoHelper()
	c.Annotate(ctx, annotation.DefaultKey, pairs)
}

// Label sets a label, or removes it if the value is empty.
func (c *ConfigMap) Label(ctx context.Context, key, value string) {
	GinkgoHelper()
	labels := map[string]any{key: value}
	if value == "" {
		labels[key] = nil
	}
	c.Patch(ctx, map[string]any{"metadata": map[string]any{"labels": labels}})
}

// Put sets a key, as a user would.
func (c *ConfigMap) Put(ctx context.Context, key, value string) {
	GinkgoHelper()
	c.Patch(ctx, map[string]any{"data": map[string]any{key: value}})
}

// Drop removes a key from data and binaryData.
func (c *ConfigMap) Drop(ctx context.Context, key string) {
	GinkgoHelper()
	c.Patch(ctx, map[string]any{"data": map[string]any{key: nil}, "binaryData": map[string]any{key: nil}})
}

// Patch applies a merge patch.
func (c *ConfigMap) Patch(ctx context.Context, patch map[string]any) {
	GinkgoHelper()
	body := suitetest.Must(json.Marshal(patch))
	patched := suitetest.Must(c.api().Patch(ctx, c.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: manager}))
	c.world.wrote(ctx, patched)
}

// Replace replaces the whole ConfigMap, like kubectl replace.
func (c *ConfigMap) Replace(ctx context.Context, object *corev1.ConfigMap) {
	GinkgoHelper()
	replaced := suitetest.Must(c.api().Update(ctx, object, metav1.UpdateOptions{FieldManager: manager}))
	c.world.wrote(ctx, replaced)
}

func (c *ConfigMap) api() corev1client.ConfigMapInterface {
	return c.world.Cluster.Client.CoreV1().ConfigMaps(c.world.Namespace)
}

// wrote attributes a write to the spec, and waits until the history has it, so that the next expectation sees
// only later versions.
func (w *World) wrote(ctx context.Context, object *corev1.ConfigMap) {
	GinkgoHelper()
	w.History.BySpec(object)
	Eventually(ctx, func() bool { return w.History.Seen(object) }).WithPolling(time.Millisecond).
		Should(BeTrue(), "the watch shows the write")
}

// Delete deletes the ConfigMap, and waits until the history has the deletion.
func (c *ConfigMap) Delete(ctx context.Context) {
	GinkgoHelper()
	uid := c.Get(ctx).UID
	c.world.History.DeletedBySpec(uid)
	Expect(c.api().Delete(ctx, c.Name, metav1.DeleteOptions{})).
		To(Succeed())
	Eventually(ctx, func() bool {
		latest := c.world.History.Latest(c.Name)
		return latest == nil || latest.UID != uid
	}).WithPolling(time.Millisecond).Should(BeTrue(), "the watch shows the deletion")
}

// Get reads the ConfigMap.
func (c *ConfigMap) Get(ctx context.Context) *corev1.ConfigMap {
	GinkgoHelper()
	return suitetest.Must(c.api().Get(ctx, c.Name, metav1.GetOptions{}))
}

// Status returns the status of a key.
func (c *ConfigMap) Status(ctx context.Context, key string) status.Entry {
	GinkgoHelper()
	return c.status(ctx).Keys[key]
}

// Problem returns the problem of the annotations in the status, or nil.
func (c *ConfigMap) Problem(ctx context.Context) *status.ObjectProblem {
	GinkgoHelper()
	return c.status(ctx).Problem
}

func (c *ConfigMap) status(ctx context.Context) status.Status {
	GinkgoHelper()
	return suitetest.Must(status.Parse(c.Get(ctx).Annotations[annotation.StatusKey]))
}

// Writes returns the number of writes by the system to the ConfigMap.
func (c *ConfigMap) Writes(ctx context.Context) int {
	GinkgoHelper()
	c.world.EventuallyCaughtUp(ctx)
	return c.world.History.Writes(c.Name)
}

// EventuallyCaughtUp waits until the history is complete. It lists all ConfigMaps, so call it once before
// reading History.Writes of many.
func (w *World) EventuallyCaughtUp(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error { return w.History.CaughtUp(ctx) }).Should(Succeed())
}

// ConditionOf returns a condition as "status/reason", or "-" if the current generation does not have it yet.
func ConditionOf(w *watchv1.Watcher, kind string) string {
	c := meta.FindStatusCondition(w.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != w.Generation {
		return "-"
	}
	return string(c.Status) + "/" + c.Reason
}
