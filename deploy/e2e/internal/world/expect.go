package world

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// data returns the newest value of a key, or nil if the key does not exist.
func (c *ConfigMap) data(key string) any {
	if object := c.world.History.Latest(c.Name); object != nil {
		if value, found := object.Data[key]; found {
			return value
		}
	}
	return nil
}

func (c *ConfigMap) binary(key string) []byte {
	if object := c.world.History.Latest(c.Name); object != nil {
		return object.BinaryData[key]
	}
	return nil
}

// Within returns the ConfigMap with another time limit for EventuallyHasData and EventuallyHasEvents.
func (c *ConfigMap) Within(limit time.Duration) *ConfigMap {
	return &ConfigMap{Name: c.Name, world: c.world, limit: limit}
}

func (c *ConfigMap) eventually(ctx context.Context, actual any) AsyncAssertion {
	GinkgoHelper()
	if c.limit > 0 {
		return Eventually(ctx, actual).WithTimeout(c.limit)
	}
	return Eventually(ctx, actual)
}

// EventuallyHasData waits until data has a value.
func (c *ConfigMap) EventuallyHasData(ctx context.Context, key, value string) {
	GinkgoHelper()
	c.eventually(ctx, func() any { return c.data(key) }).Should(Equal(value), "data of %s in key %s", c.Name, key)
}

// EventuallyHasBinary waits until binaryData has a value.
func (c *ConfigMap) EventuallyHasBinary(ctx context.Context, key string, value []byte) {
	GinkgoHelper()
	Eventually(ctx, func() []byte { return c.binary(key) }).Should(Equal(value), "binaryData of %s in key %s", c.Name, key)
}

// EventuallyLacks waits until neither data nor binaryData has a key.
func (c *ConfigMap) EventuallyLacks(ctx context.Context, key string) {
	GinkgoHelper()
	Eventually(ctx, func() bool { return c.data(key) == nil && c.binary(key) == nil }).
		Should(BeTrue(), "ConfigMap %s still has key %s", c.Name, key)
}

// EventuallyReports waits until the status of a key has this error, or no error if reason is empty.
func (c *ConfigMap) EventuallyReports(ctx context.Context, key, reason string) {
	GinkgoHelper()
	Eventually(ctx, func() any {
		object := c.world.History.Latest(c.Name)
		if object == nil {
			return nil
		}
		s, _ := status.Parse(object.Annotations[annotation.StatusKey])
		if entry, found := s.Keys[key]; found {
			return entry.Error
		}
		return nil
	}).Should(Equal(reason), "error in the status of %s for key %s", c.Name, key)
}

// eventPolling is slow because listing Events is expensive for the API server.
const eventPolling = 50 * time.Millisecond

// Events returns all Events in the namespace, from any reporter.
func (w *World) Events(ctx context.Context) []eventsv1.Event {
	GinkgoHelper()
	var list *eventsv1.EventList
	Eventually(ctx, func() (err error) {
		list, err = w.Cluster.Client.EventsV1().Events(w.Namespace).List(ctx, metav1.ListOptions{})
		return err
	}).WithPolling(eventPolling).Should(Succeed())
	return list.Items
}

// Events returns the Events about the ConfigMap, optionally only those with one of the reasons.
func (c *ConfigMap) Events(ctx context.Context, reasons ...string) []eventsv1.Event {
	GinkgoHelper()
	var events []eventsv1.Event
	for _, e := range c.world.Events(ctx) {
		if e.Regarding.Kind == "ConfigMap" && e.Regarding.Name == c.Name &&
			(len(reasons) == 0 || slices.Contains(reasons, e.Reason)) {
			events = append(events, e)
		}
	}
	return events
}

// Reasons returns the reasons of all Events about the ConfigMap.
func (c *ConfigMap) Reasons(ctx context.Context) []string {
	GinkgoHelper()
	reasons := []string{}
	for _, e := range c.Events(ctx) {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// EventuallyHasEvents waits until the Events about the ConfigMap have exactly these reasons, in any order.
func (c *ConfigMap) EventuallyHasEvents(ctx context.Context, reasons ...string) {
	GinkgoHelper()
	c.eventually(ctx, func() []string { return c.Reasons(ctx) }).WithPolling(eventPolling).Should(ConsistOf(reasons))
}

// HasEvents expects that the Events about the ConfigMap have exactly these reasons, in any order.
func (c *ConfigMap) HasEvents(ctx context.Context, reasons ...string) {
	GinkgoHelper()
	Expect(c.Reasons(ctx)).To(ConsistOf(reasons))
}

// Visit returns a world around existing services and a web server: a namespace and the history of its ConfigMaps. At
// the end of the spec or suite it checks the promises.
func Visit(ctx context.Context, c *Cluster, server *origin.Server) *World {
	GinkgoHelper()
	w := &World{Cluster: c, Origin: server}
	w.Trust(server)
	w.Namespace = c.Namespace(ctx)
	DeferCleanup(w.clear)
	w.follow(ctx)
	DeferCleanup(func(ctx SpecContext) { w.ShouldKeepPromises(ctx) })
	return w
}

// ShouldKeepPromises checks the promises so far.
func (w *World) ShouldKeepPromises(ctx context.Context) {
	GinkgoHelper()
	w.EventuallyCaughtUp(ctx)
	Expect(w.Checker().Check(w.History.Lives())).To(BeEmpty(), "broken promises")
	w.checkWords(ctx)
}

// clear deletes the namespace and its objects itself, since there may be no controller manager.
func (w *World) clear(ctx SpecContext) {
	core := w.Cluster.Client.CoreV1()
	_, err := core.ConfigMaps(w.Namespace).Get(ctx, annotation.RootCA, metav1.GetOptions{})
	managed := err == nil
	Expect(core.ConfigMaps(w.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	Expect(w.Cluster.Client.EventsV1().Events(w.Namespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	if err := core.Namespaces().Delete(ctx, w.Namespace, metav1.DeleteOptions{}); apierrors.IsNotFound(err) || managed {
		return
	}
	namespace := suitetest.Must(core.Namespaces().Get(ctx, w.Namespace, metav1.GetOptions{}))
	namespace.Spec.Finalizers = nil
	suitetest.Must(core.Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{}))
}

// ErrorOf returns the error of a call whose value does not matter.
func ErrorOf[T any](_ T, err error) error { return err }
