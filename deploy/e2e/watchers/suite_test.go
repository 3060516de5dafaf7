// Package watchers checks the custom resource Watcher against its promises, with a real API server and the real
// programs.
package watchers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestWatchers(t *testing.T) { world.Run(t, "Watchers") }

var (
	env      *world.Environment
	watchers *watchv1.Client
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyPollingInterval(polling)
	env = world.Open()
	watchers = kubetest.Watchers(ctx, GinkgoTB(), env.Cluster.Config)
})

// polling is slow to spare the API server.
const polling = 25 * time.Millisecond

// system is a world with a keeper that has minimal permissions.
type system struct {
	*world.World
	keeper *world.Service
}

func open(ctx context.Context) *system {
	GinkgoHelper()
	return openAs(ctx, world.LeastRights(env.Cluster))
}

// openWithSidecars also lets keeper watch pods and its namespace.
func openWithSidecars(ctx context.Context) *system {
	GinkgoHelper()
	accounts, account := world.LeastRights(env.Cluster), world.KeeperWithSidecars(env.Cluster)
	accounts[world.Keeper] = func(ctx context.Context, namespace string) string {
		letWatchNamespace(ctx, namespace)
		return account(ctx, namespace)
	}
	return openAs(ctx, accounts, "--sidecars")
}

func openAs(ctx context.Context, accounts map[string]func(context.Context, string) string, flags ...string) *system {
	GinkgoHelper()
	// A held page must not time out on a busy machine.
	w := env.World(ctx, world.Options{Kubeconfigs: accounts, Flags: map[string][]string{
		world.Fetcher: {"--timeout=20s", "--header-timeout=20s"},
	}})
	s := &system{World: w, keeper: w.Launch(ctx, world.Keeper, flags...)}
	s.keeper.EventuallyReady(ctx)
	return s
}

func (s *system) watchers() *watchv1.Namespaced { return watchers.In(s.Namespace) }

// apply creates or updates a Watcher like kubectl apply --server-side.
func (s *system) apply(ctx context.Context, name, spec string) *watcher {
	GinkgoHelper()
	w := &watcher{system: s, name: name}
	w.apply(ctx, spec)
	return w
}

// applyReady creates a Watcher and waits until it is ready.
func (s *system) applyReady(ctx context.Context, name, spec string) *watcher {
	GinkgoHelper()
	w := s.apply(ctx, name, spec)
	w.eventuallyReady(ctx)
	return w
}

// watcher is a Watcher of a spec.
type watcher struct {
	system *system
	name   string
}

func (w *watcher) apply(ctx context.Context, spec string) {
	GinkgoHelper()
	suitetest.Must(kubetest.ApplyWatcher(ctx, w.system.watchers(), w.name, spec))
}

// annotate sets an annotation.
func (w *watcher) annotate(ctx context.Context, name, value string) {
	GinkgoHelper()
	suitetest.Must(w.system.watchers().Patch(ctx, w.name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, value), metav1.PatchOptions{}))
}

func (w *watcher) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(w.system.watchers().Delete(ctx, w.name, metav1.DeleteOptions{})).To(Succeed())
}

func (w *watcher) get(ctx context.Context) *watchv1.Watcher {
	GinkgoHelper()
	return suitetest.Must(w.system.watchers().Get(ctx, w.name, metav1.GetOptions{}))
}

// condition returns a condition as "status/reason", or "-" if the current generation does not have it yet.
func (w *watcher) condition(ctx context.Context, kind string) string {
	GinkgoHelper()
	return world.ConditionOf(w.get(ctx), kind)
}

func (w *watcher) eventually(ctx context.Context, kind, value string) {
	GinkgoHelper()
	Eventually(ctx, func() string { return w.condition(ctx, kind) }).
		Should(Equal(value), "condition %s of %s", kind, w.name)
}

func (w *watcher) eventuallyReady(ctx context.Context) {
	GinkgoHelper()
	w.eventually(ctx, watchv1.ConditionReady, "True/Ready")
}

// message returns the message of a condition.
func (w *watcher) message(ctx context.Context, kind string) string {
	GinkgoHelper()
	if c := meta.FindStatusCondition(w.get(ctx).Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// events returns the Events about the Watcher with a reason.
func (w *watcher) events(ctx context.Context, reason string) []eventsv1.Event {
	GinkgoHelper()
	var found []eventsv1.Event
	for _, e := range w.system.Events(ctx) {
		if e.Regarding.Kind == watchv1.Kind && e.Regarding.Name == w.name && e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// eventuallyHasEvents waits until n Events about the Watcher have a reason.
func (w *watcher) eventuallyHasEvents(ctx context.Context, reason string, n int) {
	GinkgoHelper()
	Eventually(ctx, func() int { return len(w.events(ctx, reason)) }).
		Should(Equal(n), "Events %s about %s", reason, w.name)
}

// configMap returns a ConfigMap, or nil if there is none.
func (s *system) configMap(ctx context.Context, name string) *corev1.ConfigMap {
	GinkgoHelper()
	list := suitetest.Must(s.Cluster.Client.CoreV1().ConfigMaps(s.Namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}))
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// data returns the data of a ConfigMap.
func (s *system) data(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	if cm := s.configMap(ctx, name); cm != nil {
		return cm.Data
	}
	return nil
}

// eventuallyHas waits until the data of a ConfigMap matches, for less time than until keeper checks obstacles
// again.
func (s *system) eventuallyHas(ctx context.Context, name string, expected gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func() map[string]string { return s.data(ctx, name) }).WithTimeout(promptly).Should(expected)
}

// writes returns the number of write requests of keeper by kind.
func (s *system) writes(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	return map[string]float64{
		"applies": s.keeper.Metric(ctx, "curlmethat_keeper_applies_total"),
		"status":  s.keeper.Metric(ctx, "curlmethat_keeper_status_patches_total"),
	}
}
