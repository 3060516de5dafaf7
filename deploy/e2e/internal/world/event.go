package world

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eventPolling spares the API server, which lists Events slowly.
const eventPolling = 50 * time.Millisecond

// Events returns all Events in the namespace, whoever wrote them.
func (w *World) Events(ctx context.Context) []eventsv1.Event {
	GinkgoHelper()
	var list *eventsv1.EventList
	Eventually(ctx, func() (err error) {
		list, err = w.Cluster.Client.EventsV1().Events(w.Namespace).List(ctx, metav1.ListOptions{})
		return err
	}).WithPolling(eventPolling).Should(Succeed())
	return list.Items
}

// Events returns the Events about the ConfigMap, or those with one of the
// reasons.
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

// EventuallyTells waits until Events about the ConfigMap have these reasons, in
// any order and no other.
func (c *ConfigMap) EventuallyTells(ctx context.Context, reasons ...string) {
	GinkgoHelper()
	c.EventuallyTellsWithin(ctx, patience, reasons...)
}

// EventuallyTellsWithin is EventuallyTells with a different timeout.
func (c *ConfigMap) EventuallyTellsWithin(ctx context.Context, limit time.Duration, reasons ...string) {
	GinkgoHelper()
	Eventually(ctx, func() []string { return c.Reasons(ctx) }).WithTimeout(limit).WithPolling(eventPolling).
		Should(ConsistOf(reasons))
}

// Tells expects that Events about the ConfigMap have these reasons and no
// other.
func (c *ConfigMap) Tells(ctx context.Context, reasons ...string) {
	GinkgoHelper()
	Expect(c.Reasons(ctx)).To(ConsistOf(reasons))
}
