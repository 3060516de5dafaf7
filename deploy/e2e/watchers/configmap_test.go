package watchers_test

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// promptly is a timeout for several requests and programs, about 100 ms on a quiet machine. It is less than
// half of the 30 s after which keeper checks obstacles again, so an action that waits for that check is too
// late.
const promptly = 12 * time.Second

var _ = Describe("The ConfigMap of a Watcher", func() {
	It("gets a fetched body with one apply, one patch and at most two status writes", func(ctx SpecContext) {
		s := open(ctx)
		page := s.Origin.Page("/rules").Says("rules")
		release := page.Hold()
		before := s.writes(ctx)
		w := s.apply(ctx, "one", `sources: [{key: rules.json, url: "`+page.URL()+`"}]`)
		Eventually(ctx, page.Waiting).Should(Equal(1))
		w.eventually(ctx, watchv1.ConditionReady, "Unknown/Progressing")
		release()
		Eventually(ctx, func() string { return w.condition(ctx, watchv1.ConditionReady) }).WithTimeout(promptly).
			Should(Equal("True/Ready"))
		Expect(s.data(ctx, "one-config")).To(Equal(map[string]string{"rules.json": "rules"}))
		now := w.get(ctx)
		Expect(now.Status.Fetched).To(Equal("1/1"))
		Expect(now.Status.Sources).To(HaveLen(1))
		Expect(now.Status.Sources[0]).To(gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
			"Key": Equal("rules.json"), "State": Equal(watchv1.Good), "Size": Equal(int64(5)), "FetchedAt": Not(BeNil()),
		}))
		Expect(w.condition(ctx, watchv1.ConditionFresh)).To(Equal("True/Fresh"))
		s.EventuallyQuiet(ctx)
		Eventually(ctx, func() error { return s.History.CaughtUp(ctx) }).Should(Succeed())
		Expect(s.History.Writes("one-config")).To(Equal(2), "its creation, and one patch of the writer")
		after := s.writes(ctx)
		Expect(after["applies"] - before["applies"]).To(Equal(1.0))
		Expect(after["status"] - before["status"]).To(BeNumerically("<=", 2))
		Expect(page.Hits()).To(Equal(1))
	})

	It("of another owner is not overwritten until it is labelled", func(ctx SpecContext) {
		s := open(ctx)
		theirs := s.Create(ctx, "taken-config", world.Holding("theirs", "kept"))
		before := suitetest.Must(json.Marshal(theirs.Get(ctx)))
		w := s.apply(ctx, "taken", `configData: {a: b}`)
		w.eventually(ctx, watchv1.ConditionReady, "False/TargetExists")
		Expect(w.message(ctx, watchv1.ConditionReady)).
			To(ContainSubstring("label it watch.x-kv8s.io/watcher=taken to hand it over"))
		w.annotate(ctx, "look", "again")
		w.eventuallyHasEvents(ctx, "TargetExists", 1)
		s.applyReady(ctx, "zz", `configData: {a: b}`)
		Expect(w.events(ctx, "TargetExists")).To(HaveLen(1))
		Expect(json.Marshal(theirs.Get(ctx))).To(Equal(before))

		theirs.Label(ctx, watchv1.WatcherLabel, "taken")
		s.eventuallyHas(ctx, "taken-config", Equal(map[string]string{"a": "b", "theirs": "kept"}))
		w.eventuallyReady(ctx)
	})

	It("belongs to one of two Watchers, and to the other one after the first is deleted", func(ctx SpecContext) {
		s := open(ctx)
		first := s.applyReady(ctx, "first", `configData: {whose: first}, target: {name: shared}`)
		second := s.apply(ctx, "second", `configData: {whose: second}, target: {name: shared}`)
		second.eventually(ctx, watchv1.ConditionStalled, "True/TargetOwned")
		Expect(second.message(ctx, watchv1.ConditionReady)).To(ContainSubstring("belongs to Watcher first"))
		Expect(s.data(ctx, "shared")).To(Equal(map[string]string{"whose": "first"}))
		first.delete(ctx)
		s.Named("shared").Delete(ctx)
		s.eventuallyHas(ctx, "shared", Equal(map[string]string{"whose": "second"}))
		second.eventuallyReady(ctx)
	})

	It("is repaired after an edit or a deletion, with an Event, and then at growing intervals", func(ctx SpecContext) {
		s := open(ctx)
		w := s.applyReady(ctx, "fight", `configData: {a: as asked}`)
		value := func() string { return s.data(ctx, "fight-config")["a"] }
		for range 2 {
			s.Named("fight-config").Put(ctx, "a", "by hand")
			Eventually(ctx, value).WithTimeout(promptly).Should(Equal("as asked"))
		}
		s.Named("fight-config").Delete(ctx)
		Eventually(ctx, value).WithTimeout(promptly).Should(Equal("as asked"))
		w.eventuallyHasEvents(ctx, "Drifted", 3)
		edited := HaveField("Note", "ConfigMap fight-config was changed by kubectl-edit and has been repaired")
		Expect(w.events(ctx, "Drifted")).To(ConsistOf(edited, edited,
			HaveField("Note", "ConfigMap fight-config was deleted and has been created again")))
		for _, text := range []string{"by hand", "once more"} {
			s.Named("fight-config").Put(ctx, "a", text)
			w.eventuallyHasEvents(ctx, "RepairBackOff", 1)
		}
		Expect(w.events(ctx, "RepairBackOff")[0].Note).
			To(Equal("ConfigMap fight-config keeps being changed by kubectl-edit; it is repaired at growing intervals"))
		Expect(value()).To(Equal("once more"))
		Expect(w.events(ctx, "Drifted")).To(HaveLen(3))
	})

	It("is adopted after a restore by Velero, which drops owner and managed fields", func(ctx SpecContext) {
		s := open(ctx)
		page := s.Origin.Page("/converges").Says("fetched")
		spec := `configData: {a: two}, sources: [{key: b, url: "` + page.URL() + `"}]`
		w := s.applyReady(ctx, "converges", spec)
		saved := s.configMap(ctx, "converges-config")
		w.delete(ctx)
		s.Named("converges-config").Delete(ctx)
		Eventually(ctx, func() *corev1.ConfigMap { return s.configMap(ctx, "converges-config") }).Should(BeNil())
		restored := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: saved.Name, Labels: saved.Labels, Annotations: saved.Annotations},
			Data:       saved.Data, BinaryData: saved.BinaryData,
		}
		s.History.BySpec(suitetest.Must(s.Cluster.Client.CoreV1().ConfigMaps(s.Namespace).
			Create(ctx, restored, metav1.CreateOptions{FieldManager: "velero"})))
		applied := func() float64 { return s.keeper.Metric(ctx, "curlmethat_keeper_applies_total", `outcome="applied"`) }
		before := applied() // another apply may fail because the writer writes the fetched body first
		w.apply(ctx, spec)
		w.eventuallyReady(ctx)
		Expect(s.configMap(ctx, "converges-config").OwnerReferences).To(HaveLen(1))
		Expect(s.data(ctx, "converges-config")).To(Equal(map[string]string{"a": "two", "b": "fetched"}))
		Expect(applied() - before).To(BeNumerically("<=", 1))
		s.Unfinished()
	})
})

var _ = Describe("A Watcher that the schema accepts", func() {
	It("is Stalled while a policy rejects its ConfigMap, and hides the policy's message", func(ctx SpecContext) {
		s := open(ctx)
		w := s.applyReady(ctx, "refused", `configData: {a: b}`)
		s.Deny(ctx, "denied")
		w.apply(ctx, `configData: {a: b, denied: x}`)
		w.eventually(ctx, watchv1.ConditionStalled, "True/TargetRefused")
		Expect(w.message(ctx, watchv1.ConditionReady)).To(Equal(
			"the API server refuses ConfigMap refused-config (Invalid); kubectl apply of a ConfigMap of that name prints why"))
		w.eventuallyHasEvents(ctx, "TargetRefused", 1)
		Expect(s.data(ctx, "refused-config")).To(Equal(map[string]string{"a": "b"}))
		w.apply(ctx, `configData: {a: c}`)
		w.eventuallyReady(ctx)
		Expect(s.data(ctx, "refused-config")).To(Equal(map[string]string{"a": "c"}))
	})
})

var _ = Describe("The rules of a Watcher", func() {
	It("keep the last good value and give their message, and a selection stores a part", func(ctx SpecContext) {
		s := open(ctx)
		page := s.Origin.Page("/rules").Says(`{"rules":[1]}`)
		spec := func(rule string) string {
			return `interval: 1h, sources: [{key: rules.json, url: "` + page.URL() + `", interval: 2h, select: json.rules,
				expect: [{rule: size(body) > 0}, {rule: "` + rule + `", message: no rules yet}]}]`
		}
		w := s.applyReady(ctx, "ruled", spec("size(json.rules) > 0"))
		Expect(s.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1]"))
		Expect(s.configMap(ctx, "ruled-config").Annotations).
			To(HaveKeyWithValue("x-kv8s.io/curl-refresh", "1h rules.json=2h"))

		page.Says("<html>Sign in, token S3CR3T</html>")
		w.annotate(ctx, "x-kv8s.io/curl-now", "1")
		w.eventually(ctx, watchv1.ConditionFresh, "False/ContentRejected")
		Expect(w.message(ctx, watchv1.ConditionFresh)).
			To(And(ContainSubstring("(no rules yet)"), Not(ContainSubstring("S3CR3T"))))
		Expect(w.condition(ctx, watchv1.ConditionReady)).To(Equal("True/Ready"))
		Expect(s.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1]"))

		page.Says(`{"rules":[1,2]}`)
		w.annotate(ctx, "x-kv8s.io/curl-now", "2")
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
		Expect(s.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1,2]"))
		Expect(w.get(ctx).Status.LastHandledReconcileAt).To(Equal("2"))
		w.eventuallyHasEvents(ctx, "Recovered", 1)

		w.apply(ctx, spec("size(json.rules) > 2"))
		w.eventually(ctx, watchv1.ConditionFresh, "False/ContentRejected")
		w.apply(ctx, spec("size(json.rules) + 1"))
		w.eventually(ctx, watchv1.ConditionStalled, "True/InvalidExpression")
		Expect(w.message(ctx, watchv1.ConditionStalled)).To(ContainSubstring(
			"annotation curl-expect, rule 2 of key rules.json: expected a boolean, column 18"))
		Expect(s.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1,2]"))
		w.apply(ctx, spec("size(json.rules) > 1"))
		w.eventuallyReady(ctx)
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
	})
})
