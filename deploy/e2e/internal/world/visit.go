package world

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// Visit returns a world around existing services: a namespace and the history of its ConfigMaps. At the end of
// the spec or suite it checks the promises. served reports whether a URL has ever returned a body.
func Visit(ctx context.Context, c *Cluster, served func(url string, body []byte) bool) *World {
	GinkgoHelper()
	w := &World{Cluster: c, visited: served}
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
