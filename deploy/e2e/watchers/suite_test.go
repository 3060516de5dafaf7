// Package watchers checks the custom resource Watcher against its promises, with a real API server and the real
// programs.
package watchers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestWatchers(t *testing.T) { world.Run(t, "Watchers") }

var (
	env *world.Environment
	// api is a client for resources without types in client-go.
	api dynamic.Interface
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyPollingInterval(polling)
	env = world.Open()
	api = env.Cluster.ServeWatchers(ctx)
})

// polling is slow to spare the API server.
const polling = 25 * time.Millisecond

// home is a world with a keeper that has minimal permissions.
type home struct {
	*world.World
	keeper *world.Service
}

func open(ctx context.Context) *home {
	GinkgoHelper()
	return openAs(ctx, world.LeastRights(env.Cluster))
}

// openWithSidecars also lets keeper watch pods and its namespace.
func openWithSidecars(ctx context.Context) *home {
	GinkgoHelper()
	accounts, account := world.LeastRights(env.Cluster), world.KeeperWithSidecars(env.Cluster)
	accounts[world.Keeper] = func(ctx context.Context, namespace string) string {
		letWatchNamespace(ctx, namespace)
		return account(ctx, namespace)
	}
	return openAs(ctx, accounts, "--sidecars")
}

func openAs(ctx context.Context, accounts map[string]func(context.Context, string) string, flags ...string) *home {
	GinkgoHelper()
	// A held page must not time out on a busy machine.
	w := env.World(ctx, world.Options{Kubeconfigs: accounts, Flags: map[string][]string{
		world.Fetcher: {"--timeout=20s", "--header-timeout=20s"},
	}})
	h := &home{World: w, keeper: w.Launch(ctx, world.Keeper, flags...)}
	h.keeper.EventuallyReady(ctx)
	return h
}

func (h *home) watchers() dynamic.ResourceInterface {
	return api.Resource(watchv1.Resource()).Namespace(h.Namespace)
}

// apply creates or updates a Watcher like kubectl apply --server-side.
func (h *home) apply(ctx context.Context, name, spec string) *watcher {
	GinkgoHelper()
	w := &watcher{home: h, name: name}
	w.apply(ctx, spec)
	return w
}

// applyReady creates a Watcher and waits until it is ready.
func (h *home) applyReady(ctx context.Context, name, spec string) *watcher {
	GinkgoHelper()
	w := h.apply(ctx, name, spec)
	w.eventuallyReady(ctx)
	return w
}

// watcher is a Watcher of a spec.
type watcher struct {
	home *home
	name string
}

func (w *watcher) apply(ctx context.Context, spec string) {
	GinkgoHelper()
	suitetest.Must(w.home.watchers().Apply(ctx, w.name, world.WatcherOf(w.name, spec),
		metav1.ApplyOptions{FieldManager: "kubectl"}))
}

// annotate sets an annotation.
func (w *watcher) annotate(ctx context.Context, name, value string) {
	GinkgoHelper()
	suitetest.Must(w.home.watchers().Patch(ctx, w.name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, name, value), metav1.PatchOptions{}))
}

func (w *watcher) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(w.home.watchers().Delete(ctx, w.name, metav1.DeleteOptions{})).To(Succeed())
}

func (w *watcher) get(ctx context.Context) *watchv1.Watcher {
	GinkgoHelper()
	return suitetest.Must(world.ReadWatcher(ctx, w.home.watchers(), w.name))
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
	for _, e := range w.home.Events(ctx) {
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
func (h *home) configMap(ctx context.Context, name string) *corev1.ConfigMap {
	GinkgoHelper()
	list := suitetest.Must(h.Cluster.Client.CoreV1().ConfigMaps(h.Namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}))
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// data returns the data of a ConfigMap.
func (h *home) data(ctx context.Context, name string) map[string]string {
	GinkgoHelper()
	if cm := h.configMap(ctx, name); cm != nil {
		return cm.Data
	}
	return nil
}

// eventuallyHas waits until the data of a ConfigMap matches, for less time than until keeper checks obstacles
// again.
func (h *home) eventuallyHas(ctx context.Context, name string, expected gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func() map[string]string { return h.data(ctx, name) }).WithTimeout(promptly).Should(expected)
}

// writes returns the number of write requests of keeper by kind.
func (h *home) writes(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	return map[string]float64{
		"applies": h.keeper.Metric(ctx, "curlmethat_keeper_applies_total"),
		"status":  h.keeper.Metric(ctx, "curlmethat_keeper_status_patches_total"),
	}
}

// promptly is a timeout for several requests and programs, about 100 ms on a quiet machine. It is less than
// half of the 30 s after which keeper checks obstacles again, so an action that waits for that check is too
// late.
const promptly = 12 * time.Second

var _ = Describe("The ConfigMap of a Watcher", func() {
	It("gets a fetched body with one apply, one patch and at most two status writes", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/rules").Says("rules")
		release := page.Hold()
		before := h.writes(ctx)
		w := h.apply(ctx, "one", `sources: [{key: rules.json, url: "`+page.URL()+`"}]`)
		Eventually(ctx, page.Waiting).Should(Equal(1))
		w.eventually(ctx, watchv1.ConditionReady, "Unknown/Progressing")
		release()
		Eventually(ctx, func() string { return w.condition(ctx, watchv1.ConditionReady) }).WithTimeout(promptly).
			Should(Equal("True/Ready"))
		Expect(h.data(ctx, "one-config")).To(Equal(map[string]string{"rules.json": "rules"}))
		now := w.get(ctx)
		Expect(now.Status.Fetched).To(Equal("1/1"))
		Expect(now.Status.Sources).To(HaveLen(1))
		Expect(now.Status.Sources[0]).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
			"Key": Equal("rules.json"), "State": Equal(watchv1.Good), "Size": Equal(int64(5)), "FetchedAt": Not(BeNil()),
		}))
		Expect(w.condition(ctx, watchv1.ConditionFresh)).To(Equal("True/Fresh"))
		h.EventuallyQuiet(ctx)
		Eventually(ctx, func() error { return h.History.CaughtUp(ctx) }).Should(Succeed())
		Expect(h.History.Writes("one-config")).To(Equal(2), "its creation, and one patch of the writer")
		after := h.writes(ctx)
		Expect(after["applies"] - before["applies"]).To(Equal(1.0))
		Expect(after["status"] - before["status"]).To(BeNumerically("<=", 2))
		Expect(page.Hits()).To(Equal(1))
	})

	It("is repaired after a user's edit, and an Event names the field manager", func(ctx SpecContext) {
		h := open(ctx)
		w := h.applyReady(ctx, "drift", `configData: {a: as asked}`)
		h.Named("drift-config").Put(ctx, "a", "by hand")
		h.eventuallyHas(ctx, "drift-config", HaveKeyWithValue("a", "as asked"))
		w.eventuallyHasEvents(ctx, "Drifted", 1)
		Expect(w.events(ctx, "Drifted")[0].Note).
			To(Equal("ConfigMap drift-config was changed by kubectl-edit and has been repaired"))
		h.Named("drift-config").Delete(ctx)
		h.eventuallyHas(ctx, "drift-config", HaveKeyWithValue("a", "as asked")) // after the deletion
	})

	It("of another owner is not overwritten until it is labelled", func(ctx SpecContext) {
		h := open(ctx)
		theirs := h.Create(ctx, "taken-config", world.Holding("theirs", "kept"))
		before := suitetest.Must(json.Marshal(theirs.Get(ctx)))
		w := h.apply(ctx, "taken", `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionReady, "False/TargetExists")
		Expect(w.message(ctx, watchv1.ConditionReady)).
			To(ContainSubstring("label it watch.x-kv8s.io/watcher=taken to hand it over"))
		w.annotate(ctx, "look", "again")
		w.eventuallyHasEvents(ctx, "TargetExists", 1)
		h.applyReady(ctx, "zz", `configData: {a: b}`)
		Expect(w.events(ctx, "TargetExists")).To(HaveLen(1))
		Expect(json.Marshal(theirs.Get(ctx))).To(Equal(before))

		theirs.Label(ctx, watchv1.WatcherLabel, "taken")
		h.eventuallyHas(ctx, "taken-config", Equal(map[string]string{"a": "b", "theirs": "kept"}))
		w.eventuallyReady(ctx)
	})

	It("belongs to one of two Watchers, and to the other one after the first is deleted", func(ctx SpecContext) {
		h := open(ctx)
		first := h.applyReady(ctx, "first", `configData: {whose: first}, target: {name: shared}`)
		second := h.apply(ctx, "second", `configData: {whose: second}, target: {name: shared}`)
		second.eventually(ctx, watchv1.ConditionStalled, "True/TargetOwned")
		Expect(second.message(ctx, watchv1.ConditionReady)).To(ContainSubstring("belongs to Watcher first"))
		Expect(h.data(ctx, "shared")).To(Equal(map[string]string{"whose": "first"}))
		first.delete(ctx)
		h.Named("shared").Delete(ctx)
		h.eventuallyHas(ctx, "shared", Equal(map[string]string{"whose": "second"}))
		second.eventuallyReady(ctx)
	})

	It("is repaired at growing intervals while another client reverts it, with one Event", func(ctx SpecContext) {
		h := open(ctx)
		w := h.applyReady(ctx, "fight", `configData: {a: as asked}`)
		value := func() string { return h.data(ctx, "fight-config")["a"] }
		for range 3 {
			h.Named("fight-config").Put(ctx, "a", "by hand")
			Eventually(ctx, value).Should(Equal("as asked"))
		}
		w.eventuallyHasEvents(ctx, "Drifted", 3)
		for _, text := range []string{"by hand", "once more"} {
			h.Named("fight-config").Put(ctx, "a", text)
			w.eventuallyHasEvents(ctx, "RepairBackOff", 1)
		}
		Expect(w.events(ctx, "RepairBackOff")[0].Note).
			To(Equal("ConfigMap fight-config keeps being changed by kubectl-edit; it is repaired at growing intervals"))
		Expect(value()).To(Equal("once more"))
		Expect(w.events(ctx, "Drifted")).To(HaveLen(3))
	})

	It("is adopted after a restore by Velero, which drops owner and managed fields", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/converges").Says("fetched")
		spec := `configData: {a: two}, sources: [{key: b, url: "` + page.URL() + `"}]`
		w := h.applyReady(ctx, "converges", spec)
		saved := h.configMap(ctx, "converges-config")
		w.delete(ctx)
		h.Named("converges-config").Delete(ctx)
		Eventually(ctx, func() *corev1.ConfigMap { return h.configMap(ctx, "converges-config") }).Should(BeNil())
		restored := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations},
			Data:       saved.Data, BinaryData: saved.BinaryData,
		}
		h.History.BySpec(suitetest.Must(h.Cluster.Client.CoreV1().ConfigMaps(h.Namespace).
			Create(ctx, restored, metav1.CreateOptions{FieldManager: "velero"})))
		applied := func() float64 { return h.keeper.Metric(ctx, "curlmethat_keeper_applies_total", `outcome="applied"`) }
		before := applied() // another apply may fail because the writer writes the fetched body first
		w.apply(ctx, spec)
		w.eventuallyReady(ctx)
		Expect(h.configMap(ctx, "converges-config").OwnerReferences).To(HaveLen(1))
		Expect(h.data(ctx, "converges-config")).To(Equal(map[string]string{"a": "two", "b": "fetched"}))
		Expect(applied() - before).To(BeNumerically("<=", 1))
		h.Unfinished()
	})
})

var _ = Describe("A Watcher that the schema accepts", func() {
	It("is Stalled while a policy rejects its ConfigMap, and hides the policy's message", func(ctx SpecContext) {
		h := open(ctx)
		w := h.applyReady(ctx, "refused", `configData: {a: b}`)
		h.Deny(ctx, "denied")
		w.apply(ctx, `configData: {a: b, denied: x}`)
		w.eventually(ctx, watchv1.ConditionStalled, "True/TargetRefused")
		Expect(w.message(ctx, watchv1.ConditionReady)).To(Equal(
			"the API server refuses ConfigMap refused-config (Invalid); kubectl apply of a ConfigMap of that name prints why"))
		w.eventuallyHasEvents(ctx, "TargetRefused", 1)
		Expect(h.data(ctx, "refused-config")).To(Equal(map[string]string{"a": "b"}))
		w.apply(ctx, `configData: {a: c}`)
		w.eventuallyReady(ctx)
		Expect(h.data(ctx, "refused-config")).To(Equal(map[string]string{"a": "c"}))
	})
})

var _ = Describe("The rules of a Watcher", func() {
	It("keep the last good value and give their message, and a selection stores a part", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/rules").Says(`{"rules":[1]}`)
		spec := func(rule string) string {
			return `interval: 1h, sources: [{key: rules.json, url: "` + page.URL() + `", interval: 2h, select: json.rules,
				expect: [{rule: size(body) > 0}, {rule: "` + rule + `", message: no rules yet}]}]`
		}
		w := h.applyReady(ctx, "ruled", spec("size(json.rules) > 0"))
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1]"))
		Expect(h.configMap(ctx, "ruled-config").Annotations).
			To(HaveKeyWithValue("x-kv8s.io/curl-refresh", "1h rules.json=2h"))

		page.Says("<html>Sign in, token S3CR3T</html>")
		w.annotate(ctx, "x-kv8s.io/curl-now", "1")
		w.eventually(ctx, watchv1.ConditionFresh, "False/ContentRejected")
		Expect(w.message(ctx, watchv1.ConditionFresh)).
			To(And(ContainSubstring("(no rules yet)"), Not(ContainSubstring("S3CR3T"))))
		Expect(w.condition(ctx, watchv1.ConditionReady)).To(Equal("True/Ready"))
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1]"))

		page.Says(`{"rules":[1,2]}`)
		w.annotate(ctx, "x-kv8s.io/curl-now", "2")
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1,2]"))
		Expect(w.get(ctx).Status.LastHandledReconcileAt).To(Equal("2"))
		w.eventuallyHasEvents(ctx, "Recovered", 1)

		w.apply(ctx, spec("size(json.rules) > 2"))
		w.eventually(ctx, watchv1.ConditionFresh, "False/ContentRejected")
		w.apply(ctx, spec("size(json.rules) + 1"))
		w.eventually(ctx, watchv1.ConditionStalled, "True/InvalidExpression")
		Expect(w.message(ctx, watchv1.ConditionStalled)).To(ContainSubstring(
			"annotation curl-expect, rule 2 of key rules.json: expected a boolean, column 18"))
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1,2]"))
		w.apply(ctx, spec("size(json.rules) > 1"))
		w.eventuallyReady(ctx)
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
	})
})
