package watchers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/gateway"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// soon is what the acceptance criteria allow.
const soon = 5 * time.Second

var _ = Describe("The ConfigMap of a Watcher", func() {
	It("is made of a manifest of the older design within 5 s, with its data and an owner", func(ctx SpecContext) {
		h := open(ctx)
		w := h.apply(ctx, "errors", `configData: {LEVEL: warn}, configBinaryData: {logo.png: iVBORw0KGgo=},
			container: {name: watch-errors, image: registry.example/watch, args: [--file=/logs/app.log], volumeMounts: [{name: logs, mountPath: /logs}]},
			volume: {name: logs, emptyDir: {}}, imagePullSecrets: {name: registry}`)
		Eventually(ctx, func() *corev1.ConfigMap { return h.configMap(ctx, "errors-config") }).WithTimeout(soon).WithPolling(polling).ShouldNot(BeNil())
		cm, now := h.configMap(ctx, "errors-config"), w.get(ctx)
		Expect(cm.Data).To(Equal(map[string]string{"LEVEL": "warn"}))
		Expect(cm.BinaryData).To(HaveKeyWithValue("logo.png", []byte("\x89PNG\r\n\x1a\n")))
		Expect(cm.OwnerReferences).To(ConsistOf(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
			"Kind": Equal("Watcher"), "Name": Equal("errors"), "UID": Equal(now.UID), "Controller": Equal(new(true)),
		})))
		w.eventuallyReady(ctx)
		Expect(w.get(ctx).Status.ConfigMapName).To(Equal("errors-config"))
	})

	It("holds the bodies of its sources, by one apply and at most two writes of the status", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/rules").Says("rules")
		before := h.writes(ctx)
		w := h.apply(ctx, "one", `sources: [{key: rules.json, url: "`+page.URL()+`"}]`)
		w.eventuallyReady(ctx)
		Expect(h.data(ctx, "one-config")).To(Equal(map[string]string{"rules.json": "rules"}))
		now := w.get(ctx)
		Expect(now.Status.Fetched).To(Equal("1/1"))
		Expect(now.Status.Sources).To(HaveLen(1))
		Expect(now.Status.Sources[0]).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
			"Key": Equal("rules.json"), "State": Equal(watchv1.Good), "Size": Equal(int64(5)), "FetchedAt": Not(BeNil()),
		}))
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
		after := h.writes(ctx)
		Expect(after["applies"] - before["applies"]).To(Equal(1.0))
		Expect(after["status"] - before["status"]).To(BeNumerically("<=", 2))
		Expect(page.Hits()).To(Equal(1))
	})

	It("is not written again while nothing changes, also after a restart", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/same").Says("same")
		w := h.apply(ctx, "same", `configData: {a: b}, sources: [{key: c, url: "`+page.URL()+`"}]`)
		w.eventuallyReady(ctx)
		h.EventuallyQuiet(ctx)
		cm := h.configMap(ctx, "same-config").ResourceVersion
		Expect(h.keeper.Kill()).To(Succeed())
		h.keeper.Restart(ctx)
		worked := func() float64 { return h.keeper.Metric(ctx, "workqueue_work_duration_seconds_count") }
		for i := range 100 {
			before := worked()
			w.patch(ctx, `{"metadata":{"annotations":{"look":"`+strings.Repeat("x", i)+`"}}}`)
			Eventually(ctx, worked).WithPolling(time.Millisecond).Should(BeNumerically(">", before))
		}
		Expect(h.configMap(ctx, "same-config").ResourceVersion).To(Equal(cm))
		Expect(h.writes(ctx)).To(Equal(map[string]float64{"applies": 0, "status": 0}))
	})

	It("loses a static key that leaves the spec, and keeps one that a person added", func(ctx SpecContext) {
		h := open(ctx)
		w := h.apply(ctx, "prune", `configData: {a: one, b: two}`)
		w.eventuallyReady(ctx)
		h.edit(ctx, "prune-config", map[string]any{"data": map[string]any{"mine": "kept"}})
		w.apply(ctx, `configData: {a: one}`)
		Eventually(ctx, func() map[string]string { return h.data(ctx, "prune-config") }).WithPolling(polling).
			Should(Equal(map[string]string{"a": "one", "mine": "kept"}))
	})

	It("is repaired when a person changes it, and an Event names who", func(ctx SpecContext) {
		h := open(ctx)
		w := h.apply(ctx, "drift", `configData: {a: as asked}`)
		w.eventuallyReady(ctx)
		h.edit(ctx, "drift-config", map[string]any{"data": map[string]any{"a": "by hand"}})
		Eventually(ctx, func() map[string]string { return h.data(ctx, "drift-config") }).WithPolling(polling).Should(HaveKeyWithValue("a", "as asked"))
		Eventually(ctx, func() int { return len(w.events(ctx, "Drifted")) }).WithPolling(polling).Should(Equal(1))
		Expect(w.events(ctx, "Drifted")[0].Note).To(Equal("ConfigMap drift-config was changed by kubectl-edit, and is as the Watcher has it again"))
		h.collect(ctx, "drift-config")
		Eventually(ctx, func() map[string]string { return h.data(ctx, "drift-config") }).WithPolling(polling).Should(HaveKeyWithValue("a", "as asked"), "after its deletion")
	})

	It("of somebody else is left alone byte for byte, until it is labelled", func(ctx SpecContext) {
		h := open(ctx)
		theirs := h.Create(ctx, "taken-config", world.Holding("theirs", "kept"))
		before, err := json.Marshal(theirs.Get(ctx))
		Expect(err).NotTo(HaveOccurred())
		w := h.apply(ctx, "taken", `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionReady, "False/TargetExists")
		Expect(w.message(ctx, watchv1.ConditionReady)).To(ContainSubstring("label it watch.x-kv8s.io/watcher=taken to hand it over"))
		w.patch(ctx, `{"metadata":{"annotations":{"look":"again"}}}`)
		Eventually(ctx, func() int { return len(w.events(ctx, "TargetExists")) }).WithPolling(polling).Should(Equal(1))
		marker := h.apply(ctx, "zz", `configData: {a: b}`)
		marker.eventuallyReady(ctx)
		Expect(w.events(ctx, "TargetExists")).To(HaveLen(1))
		Expect(json.Marshal(theirs.Get(ctx))).To(Equal(before))

		theirs.Label(ctx, watchv1.WatcherLabel, "taken")
		Eventually(ctx, func() map[string]string { return h.data(ctx, "taken-config") }).WithPolling(polling).
			Should(Equal(map[string]string{"a": "b", "theirs": "kept"}))
		w.eventuallyReady(ctx)
	})

	It("has one Watcher of two, and after its end the other", func(ctx SpecContext) {
		h := open(ctx)
		first := h.apply(ctx, "first", `configData: {whose: first}, target: {name: shared}`)
		first.eventuallyReady(ctx)
		second := h.apply(ctx, "second", `configData: {whose: second}, target: {name: shared}`)
		second.eventually(ctx, watchv1.ConditionStalled, "True/TargetOwned")
		Expect(second.message(ctx, watchv1.ConditionReady)).To(ContainSubstring("belongs to Watcher first"))
		Expect(h.data(ctx, "shared")).To(Equal(map[string]string{"whose": "first"}))
		first.delete(ctx)
		h.collect(ctx, "shared")
		Eventually(ctx, func() map[string]string { return h.data(ctx, "shared") }).WithPolling(polling).Should(Equal(map[string]string{"whose": "second"}))
		second.eventuallyReady(ctx)
	})

	It("of somebody else that appears between the look and the apply is left alone, also without a policy", func(ctx SpecContext) {
		g, err := gateway.Start(env.Cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(g.Close)
		kubeconfig, err := g.Kubeconfig(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		accounts := world.LeastRights(env.Cluster)
		accounts[world.Keeper] = func(context.Context, string) string { return kubeconfig }
		h := openAs(ctx, accounts)
		var once sync.Once
		var before []byte
		g.Break(func(r *http.Request) gateway.Fault {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/configmaps/raced-config") {
				return nil
			}
			return func(pass http.Handler, w http.ResponseWriter, r *http.Request) {
				once.Do(func() {
					defer GinkgoRecover()
					before, err = json.Marshal(h.Create(ctx, "raced-config", world.Holding("theirs", "kept")).Get(ctx))
					Expect(err).NotTo(HaveOccurred())
				})
				pass.ServeHTTP(w, r)
			}
		})
		w := h.apply(ctx, "raced", `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionStalled, "True/TargetExists")
		Expect(before).NotTo(BeEmpty(), "it came in between")
		Expect(json.Marshal(h.configMap(ctx, "raced-config"))).To(Equal(before))
	})

	It("that a person takes back between the look and the apply is left alone", func(ctx SpecContext) {
		g, err := gateway.Start(env.Cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(g.Close)
		kubeconfig, err := g.Kubeconfig(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		accounts := world.LeastRights(env.Cluster)
		accounts[world.Keeper] = func(context.Context, string) string { return kubeconfig }
		h := openAs(ctx, accounts)
		w := h.apply(ctx, "back", `configData: {a: one}, target: {deletionPolicy: Retain}`)
		w.eventuallyReady(ctx)
		var once sync.Once
		g.Break(func(r *http.Request) gateway.Fault {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/configmaps/back-config") {
				return nil
			}
			return func(pass http.Handler, w http.ResponseWriter, r *http.Request) {
				once.Do(func() {
					defer GinkgoRecover()
					h.edit(ctx, "back-config", map[string]any{"metadata": map[string]any{"labels": map[string]any{watchv1.WatcherLabel: nil}}})
				})
				pass.ServeHTTP(w, r)
			}
		})
		w.apply(ctx, `configData: {a: two}, target: {deletionPolicy: Retain}`)
		w.eventually(ctx, watchv1.ConditionStalled, "True/TargetExists")
		Expect(h.data(ctx, "back-config")).To(Equal(map[string]string{"a": "one"}))
	})

	It("that somebody else keeps changing is repaired at growing intervals, and one Event reports that", func(ctx SpecContext) {
		h := open(ctx)
		w := h.apply(ctx, "fight", `configData: {a: as asked}`)
		w.eventuallyReady(ctx)
		value := func() string { return h.data(ctx, "fight-config")["a"] }
		for range 3 {
			h.edit(ctx, "fight-config", map[string]any{"data": map[string]any{"a": "by hand"}})
			Eventually(ctx, value).WithPolling(polling).Should(Equal("as asked"))
		}
		Eventually(ctx, func() int { return len(w.events(ctx, "Drifted")) }).WithPolling(polling).Should(Equal(3))
		for _, text := range []string{"by hand", "once more"} {
			h.edit(ctx, "fight-config", map[string]any{"data": map[string]any{"a": text}})
			Eventually(ctx, func() int { return len(w.events(ctx, "Contested")) }).WithPolling(polling).Should(Equal(1))
		}
		Expect(w.events(ctx, "Contested")[0].Note).To(Equal("ConfigMap fight-config keeps being changed by kubectl-edit; it is repaired at growing intervals"))
		Expect(value()).To(Equal("once more"))
		Expect(w.events(ctx, "Drifted")).To(HaveLen(3))
	})

	It("that two Watchers name is looked at by the other one when the first can no longer make it", func(ctx SpecContext) {
		h := open(ctx)
		h.Create(ctx, "shared", world.Holding("theirs", "kept"))
		first := h.apply(ctx, "first", `configData: {whose: first}, target: {name: shared}`)
		first.eventually(ctx, watchv1.ConditionStalled, "True/TargetExists")
		second := h.apply(ctx, "second", `configData: {whose: second}, target: {name: shared}`)
		second.eventually(ctx, watchv1.ConditionStalled, "True/TargetOwned")
		first.apply(ctx, `sources: [{key: a, url: "https://"}], target: {name: shared}`)
		second.eventually(ctx, watchv1.ConditionStalled, "True/TargetExists")
	})

	It("keeps a value whose refresh fails, and the Watcher is Ready and not Fresh", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/stale").Says("good")
		w := h.apply(ctx, "stale", `sources: [{key: a, url: "`+page.URL()+`"}]`)
		w.eventuallyReady(ctx)
		page.Fails(404)
		w.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`)
		w.eventually(ctx, watchv1.ConditionFresh, "False/BadStatus")
		Expect(w.condition(ctx, watchv1.ConditionReady)).To(Equal("True/Ready"))
		Expect(w.condition(ctx, watchv1.ConditionReconciling)).To(Equal("-"))
		Expect(h.data(ctx, "stale-config")).To(Equal(map[string]string{"a": "good"}))
		Expect(w.message(ctx, watchv1.ConditionFresh)).To(MatchRegexp(`^key a: BadStatus since 20`))
		page.Says("better")
		w.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"2"}}}`)
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
		Expect(h.data(ctx, "stale-config")).To(Equal(map[string]string{"a": "better"}))
		Expect(w.get(ctx).Status.LastHandledReconcileAt).To(Equal("2"))
		Eventually(ctx, func() int { return len(w.events(ctx, "Recovered")) }).WithPolling(polling).Should(Equal(1))
	})

	It("is retracted with the Watcher, and goes on without it when it is retained", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/kept").Says("kept")
		source := `sources: [{key: a, url: "` + page.URL() + `"}]`
		gone, kept := h.apply(ctx, "gone", source), h.apply(ctx, "kept", source+`, target: {deletionPolicy: Retain}`)
		gone.eventuallyReady(ctx)
		kept.eventuallyReady(ctx)
		Expect(h.configMap(ctx, "kept-config").OwnerReferences).To(BeEmpty())
		gone.delete(ctx)
		kept.delete(ctx)
		h.collect(ctx, "gone-config")
		wanted := func() float64 { return h.Watcher().Metric(ctx, "curlmethat_watcher_wanted_keys") }
		Eventually(ctx, wanted).Should(Equal(1.0))
		page.Says("newer")
		h.edit(ctx, "kept-config", map[string]any{"metadata": map[string]any{"annotations": map[string]any{"x-kv8s.io/curl-now": "1"}}})
		Eventually(ctx, func() map[string]string { return h.data(ctx, "kept-config") }).WithPolling(polling).Should(HaveKeyWithValue("a", "newer"))
	})

	It("moves a key between configData and sources", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/moved").Says("fetched")
		w := h.apply(ctx, "moved", `configData: {a: static}`)
		w.eventuallyReady(ctx)
		w.apply(ctx, `sources: [{key: a, url: "`+page.URL()+`"}]`)
		w.eventuallyReady(ctx)
		Expect(h.data(ctx, "moved-config")).To(Equal(map[string]string{"a": "fetched"}))
		w.apply(ctx, `configData: {a: static}`)
		w.eventuallyReady(ctx)
		h.EventuallyQuiet(ctx)
		Expect(h.data(ctx, "moved-config")).To(Equal(map[string]string{"a": "static"}))
	})

	It("waits while the Watcher is suspended", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/suspended").Says("fetched")
		w := h.apply(ctx, "suspended", `suspend: true, configData: {a: b}, sources: [{key: c, url: "`+page.URL()+`"}]`)
		w.eventually(ctx, watchv1.ConditionReady, "Unknown/Suspended")
		Expect(h.data(ctx, "suspended-config")).To(Equal(map[string]string{"a": "b"}))
		w.patch(ctx, `{"spec":{"suspend":false}}`)
		w.eventuallyReady(ctx)
		Expect(h.data(ctx, "suspended-config")).To(HaveKeyWithValue("c", "fetched"))
	})

	It("converges over a kill of keeper, with two of them, and after a restore", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/converges").Says("fetched")
		w := h.apply(ctx, "converges", `configData: {a: one}, sources: [{key: b, url: "`+page.URL()+`"}]`)
		w.eventuallyReady(ctx)
		Expect(h.keeper.Signal(syscall.SIGKILL)).To(Succeed())
		w.apply(ctx, `configData: {a: two}, sources: [{key: b, url: "`+page.URL()+`"}]`)
		Eventually(h.keeper.Running).Should(BeFalse())
		h.keeper.Restart(ctx)
		w.eventuallyReady(ctx)
		other := h.Launch(ctx, world.Keeper)
		other.EventuallyReady(ctx)
		w.eventuallyReady(ctx)
		Expect(h.data(ctx, "converges-config")).To(Equal(map[string]string{"a": "two", "b": "fetched"}))
		Expect(other.Metric(ctx, "curlmethat_keeper_applies_total")).To(BeZero())

		By("restoring as Velero does: new uids, no owner references, no managed fields")
		saved := h.configMap(ctx, "converges-config")
		w.delete(ctx)
		h.collect(ctx, "converges-config")
		Eventually(ctx, func() *corev1.ConfigMap { return h.configMap(ctx, "converges-config") }).Should(BeNil())
		restore(ctx, h, saved)
		w.apply(ctx, `configData: {a: two}, sources: [{key: b, url: "`+page.URL()+`"}]`)
		w.eventuallyReady(ctx)
		Expect(h.configMap(ctx, "converges-config").OwnerReferences).To(HaveLen(1))
		Expect(h.data(ctx, "converges-config")).To(Equal(map[string]string{"a": "two", "b": "fetched"}))
		h.Unfinished()
	})
})

// restore creates a ConfigMap as a backup holds it.
func restore(ctx context.Context, h *home, saved *corev1.ConfigMap) {
	GinkgoHelper()
	restored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations},
		Data:       saved.Data, BinaryData: saved.BinaryData,
	}
	created, err := h.Cluster.Client.CoreV1().ConfigMaps(h.Namespace).Create(ctx, restored, metav1.CreateOptions{FieldManager: "velero"})
	Expect(err).NotTo(HaveOccurred())
	h.History.BySpec(created)
}

var _ = Describe("What the schema takes and keeper checks", func() {
	DescribeTable("is Stalled with one sentence", func(ctx SpecContext, spec, reason, message string) {
		h := open(ctx)
		w := h.apply(ctx, "bad", spec)
		w.eventually(ctx, watchv1.ConditionStalled, "True/"+reason)
		Expect(w.message(ctx, watchv1.ConditionStalled)).To(ContainSubstring(message))
		Eventually(ctx, func() int { return len(w.events(ctx, reason)) }).WithPolling(polling).Should(Equal(1))
	},
		Entry("static data that is too large", `configData: {a: "`+strings.Repeat("x", 700<<10)+`", b: "`+strings.Repeat("y", 400<<10)+`"}`, "TooLarge", "the static data has 1126400 bytes, and a ConfigMap takes 1048576"),
		Entry("a URL without a host", `sources: [{key: a, url: "https://"}]`, "InvalidSource", "the host is missing"),
		Entry("more than an annotation takes", `sources: [`+longSources()+`]`, "InvalidSource", "spread the pairs over several ConfigMaps"),
		Entry("an address that is closed", `sources: [{key: a, url: "http://10.0.0.1/x"}]`, "AddressDenied", "key a: AddressDenied since"),
	)

	It("is reported of an immutable ConfigMap", func(ctx SpecContext) {
		h := open(ctx)
		h.Create(ctx, "fixed", world.Labelled(watchv1.WatcherLabel, "fixed"), world.Immutable(), world.Holding("a", "b"))
		w := h.apply(ctx, "fixed", `configData: {a: c}, target: {name: fixed}`)
		w.eventually(ctx, watchv1.ConditionStalled, "True/TargetImmutable")
		Expect(w.message(ctx, watchv1.ConditionReady)).To(Equal("ConfigMap fixed is immutable; delete it, or name another one"))
	})

	It("writes the annotation that the watcher reads", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/x").Says("x")
		w := h.apply(ctx, "options", `interval: 10m, sources: [{key: b, url: "`+page.URL()+`"}, {key: a, url: "`+page.URL()+`", sha256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}]`)
		w.eventuallyReady(ctx)
		Expect(h.configMap(ctx, "options-config").Annotations).To(And(
			HaveKeyWithValue(annotation.DefaultKey, "a="+page.URL()+" b="+page.URL()),
			HaveKeyWithValue("x-kv8s.io/curl-refresh", "10m"),
			HaveKeyWithValue("x-kv8s.io/curl-sha256", "a=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"),
		))
	})
})

// longSources are more than an annotation takes, and no more than the schema.
func longSources() string {
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, `{key: k%d, url: "a.example.com/%s"}, `, i, strings.Repeat("z", 1000))
	}
	return text.String()
}
