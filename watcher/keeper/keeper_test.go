package keeper

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = It("A ConfigMap that the API server refuses is applied again after half a minute", func(ctx SpecContext) {
	r := newRig(ctx)
	fixed := r.name("fixed")
	suitetest.Must(r.core.ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fixed.Name, Labels: map[string]string{watchv1.WatcherLabel: fixed.Name}},
		Immutable:  new(true),
	}, metav1.CreateOptions{}))
	r.run(ctx)
	r.apply(ctx, fixed.Name, `configData: {a: b}, target: {name: fixed}`)
	r.eventuallyHas(ctx, fixed.Name, 1)
	r.reconcileAll(ctx, Default, []string{fixed.Name})
	Expect(r.ready(ctx, Default, fixed.Name)).To(Equal("False/TargetImmutable Fresh"))

	before := r.writes.Load()
	r.reconcileAll(ctx, Default, []string{fixed.Name})
	Expect(r.writes.Load()).To(Equal(before))

	r.begin()
	r.run(ctx)
	Expect(r.reconcile(ctx, fixed)).To(Equal(30*time.Second), "time until the next attempt of a new keeper")
	Expect(r.writes.Load()).To(Equal(before+1), "the refused apply, and no status")
	Expect(r.core.ConfigMaps(r.namespace).Delete(ctx, fixed.Name, metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, r.targets.Len).WithTimeout(patience).Should(BeZero())
	r.clock.SetTime(r.clock.Now().Add(29 * time.Second))
	Expect(r.reconcile(ctx, fixed)).To(Equal(time.Second), "time until the next attempt")
	Expect(r.writes.Load()).To(Equal(before + 1))
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	r.reconcileAll(ctx, Default, []string{fixed.Name})
	Expect(r.ready(ctx, Default, fixed.Name)).To(Equal("True/Ready Fresh"))
	Expect(r.data(ctx, fixed.Name)).To(Equal(map[string]string{"a": "b"}))
})

var _ = It("The ConfigMap of a suspended Watcher is created, but not repaired or created again", func(ctx SpecContext) {
	r := newRig(ctx)
	r.run(ctx)
	reconcile := func() { r.reconcileAll(ctx, Default, []string{"paused"}) }
	suspend := func(suspended string, generation int64) {
		r.edit(ctx, "paused", `{"spec":{"suspend":`+suspended+`}}`)
		r.eventuallyHas(ctx, "paused", generation)
	}
	edit := func() { // returns once keeper knows of it
		r.byHand(ctx, "paused-config", `{"data":{"a":"by hand"}}`)
		plan := r.watchers.Get(r.name("paused")).Plan
		Eventually(ctx, func() bool { return isApplied(plan, r.targets.Get(plan.Target)) }).WithTimeout(patience).
			Should(BeFalse())
	}
	events := func() (reasons []string) {
		for _, e := range suitetest.Must(r.core.Events(r.namespace).List(ctx, metav1.ListOptions{})).Items {
			reasons = append(reasons, e.Reason)
		}
		return reasons
	}
	r.apply(ctx, "paused", `suspend: true, configData: {a: b}`)
	r.eventuallyHas(ctx, "paused", 1)
	reconcile()
	Expect(r.data(ctx, "paused-config")).To(Equal(map[string]string{"a": "b"}))

	suspend("false", 2)
	for range 3 {
		edit()
		r.clock.SetTime(r.clock.Now().Add(time.Second)) // each Event has its own
		reconcile()
	}
	Expect(r.data(ctx, "paused-config")).To(Equal(map[string]string{"a": "b"}))
	suspend("true", 3)
	edit()
	reconcile()
	Expect(r.data(ctx, "paused-config")).To(Equal(map[string]string{"a": "by hand"}))
	Expect(events()).To(HaveEach("Drifted"), "no repair waits for its turn")

	Expect(r.core.ConfigMaps(r.namespace).Delete(ctx, "paused-config", metav1.DeleteOptions{})).To(Succeed())
	Eventually(ctx, r.targets.Len).WithTimeout(patience).Should(BeZero())
	r.clock.SetTime(r.clock.Now().Add(time.Hour)) // repairs are not limited any more
	reconcile()
	Expect(r.ready(ctx, Default, "paused")).To(Equal("Unknown/Suspended Fresh"))
	r.begin() // without the memory of the last one
	r.run(ctx)
	reconcile()
	Expect(suitetest.Must(r.core.ConfigMaps(r.namespace).List(ctx, metav1.ListOptions{})).Items).
		NotTo(ContainElement(HaveField("Name", "paused-config")))

	suspend("false", 4)
	reconcile()
	Expect(r.data(ctx, "paused-config")).To(Equal(map[string]string{"a": "b"}))
	Expect(events()).To(HaveLen(3), "Events of the three repairs")
})

var _ = Describe("A change during a reconcile", func() {
	var r *rig

	BeforeEach(func(ctx SpecContext) {
		r = newRig(ctx)
		r.run(ctx)
		r.apply(ctx, "raced", `configData: {a: one}`)
		r.eventuallyHas(ctx, "raced", 1)
	})

	It("prevents the apply and the report of the outdated plan", func(ctx SpecContext) {
		r.once(http.MethodGet, "/watchers?metadata.name=raced",
			func() { r.edit(ctx, "raced", `{"spec":{"configData":{"a":"two"}}}`) })
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.before.Load()).To(BeNil(), "the change is done")
		Expect(r.writes.Load()).To(BeZero(), "writes")

		r.eventuallyHas(ctx, "raced", 2)
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.writes.Load()).To(BeEquivalentTo(2), "one apply, and one write of the status")
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"))
		Expect(r.data(ctx, "raced-config")).To(Equal(map[string]string{"a": "two"}))
	})

	It("of the ConfigMap leads to another apply, without a status write in between", func(ctx SpecContext) {
		r.reconcileAll(ctx, Default, []string{"raced"})
		r.edit(ctx, "raced", `{"spec":{"configData":{"a":"two"}}}`)
		r.eventuallyHas(ctx, "raced", 2)
		before := r.writes.Load()
		r.once(http.MethodPatch, "/configmaps/raced-config?",
			func() { r.byHand(ctx, "raced-config", `{"data":{"mine":"kept"}}`) })
		_, err := r.reconcile(ctx, r.name("raced"))
		Expect(err).To(MatchError(ContainSubstring("apply ConfigMap "+r.namespace+"/raced-config")), "to be retried")
		Expect(r.writes.Load()-before).To(BeEquivalentTo(1), "the apply that conflicts")

		Eventually(ctx, func() error {
			_, err := r.reconcile(ctx, r.name("raced"))
			return err
		}).WithTimeout(patience).Should(Succeed(), "once the watch has delivered the change")
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"))
		Expect(r.data(ctx, "raced-config")).To(Equal(map[string]string{"a": "two", "mine": "kept"}))
	})

	It("is not reported if the namespace is deleted", func(ctx SpecContext) {
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.core.Namespaces().Delete(ctx, r.namespace, metav1.DeleteOptions{})).To(Succeed())
		Expect(r.core.ConfigMaps(r.namespace).Delete(ctx, "raced-config", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, r.targets.Len).WithTimeout(patience).Should(BeZero())
		Eventually(ctx, func() error { // the API server needs a moment, too
			_, err := r.core.ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithTimeout(patience).ShouldNot(Succeed())
		before := r.writes.Load()
		r.reconcileAll(ctx, Default, []string{"raced"})
		Expect(r.writes.Load()-before).To(BeEquivalentTo(1), "the apply that is refused")
		Expect(suitetest.Must(r.core.Events(r.namespace).List(ctx, metav1.ListOptions{})).Items).To(BeEmpty())
		Expect(r.ready(ctx, Default, "raced")).To(Equal("True/Ready Fresh"), "as it was")
	})
})

var _ = It("A Watcher whose rule does not compile keeps no other one from its ConfigMap", func(ctx SpecContext) {
	r := newRig(ctx)
	r.run(ctx)
	r.apply(ctx, "broken", `sources: [{key: a, url: rules.example.com, expect: [{rule: "("}]}], target: {name: shared}`)
	r.apply(ctx, "working", `configData: {a: b}, target: {name: shared}`)
	Eventually(ctx, r.watchers.Len).WithTimeout(patience).Should(Equal(2))
	Eventually(ctx, func(g Gomega) {
		r.reconcileAll(ctx, g, []string{"broken", "working"})
		g.Expect(r.ready(ctx, g, "broken")).To(HavePrefix("False/InvalidExpression"))
		g.Expect(r.ready(ctx, g, "working")).To(Equal("True/Ready Fresh"))
	}).WithTimeout(patience).Should(Succeed())
})

var _ = It("An idle keeper writes nothing for ten minutes, whatever the state of its Watchers", func(ctx SpecContext) {
	r := newRig(ctx)
	suitetest.Must(r.core.ConfigMaps(r.namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{}))
	const source = `sources: [{key: a, url: rules.example.com}]`
	states := map[string]struct{ spec, entry, ready string }{
		"static":  {`configData: {a: b}`, "", "True/Ready Fresh"},
		"pending": {source, "", "Unknown/Progressing Fetching"},
		"good": {source, `{"url":"URL","sha256":"` + strings.Repeat("ab", 32) +
			`","size":4,"changedAt":"2026-11-23T00:00:00Z"}`, "True/Ready Fresh"},
		"failing": {
			source, `{"error":"Timeout","errorUrl":"URL","since":"2026-11-23T00:00:00Z","attempts":6}`,
			"False/FetchFailed Timeout",
		},
		"stale": {source, `{"url":"URL","sha256":"` + strings.Repeat("ab", 32) +
			`","size":4,"error":"BadStatus","since":"2026-11-23T00:00:00Z"}`, "True/Ready BadStatus"},
		"suspended": {`suspend: true, ` + source, "", "Unknown/Suspended Suspended"},
		"exists":    {`configData: {a: b}, target: {name: theirs}`, "", "False/TargetExists Fresh"},
		"thief":     {`configData: {a: b}, target: {name: good-config}`, "", "False/TargetOwned Fresh"},
		"invalid":   {`sources: [{key: a, url: "https://"}]`, "", "False/InvalidSource Fresh"},
		"sidecar":   {`container: {name: watch, image: registry.example/watch}`, "", "True/Ready Fresh"},
	}
	var names []string
	r.run(ctx)
	for name, state := range states {
		names = append(names, name)
		if name != "thief" {
			r.apply(ctx, name, state.spec)
		}
	}
	Eventually(ctx, r.watchers.Len).WithTimeout(patience).Should(Equal(len(states) - 1))
	r.reconcileAll(ctx, Default, names)
	r.apply(ctx, "thief", states["thief"].spec) // of two Watchers of the same age, the first by name wins
	r.sidecarRuns(ctx, "sidecar")
	for name, state := range states {
		if state.entry != "" {
			r.reports(ctx, name+"-config", state.entry)
		}
	}
	Eventually(ctx, func(g Gomega) {
		r.reconcileAll(ctx, g, names)
		for name, state := range states {
			g.Expect(r.ready(ctx, g, name)).To(Equal(state.ready), name)
		}
		g.Expect(r.pods.Len()).To(Equal(1))
		before := r.writes.Load()
		r.clock.SetTime(r.clock.Now().Add(time.Second))
		r.reconcileAll(ctx, g, names)
		g.Expect(r.writes.Load()).To(Equal(before))
		g.Expect(r.watchers.Get(r.name("sidecar")).Status.Pods).To(HaveValue(HaveField("Ready", BeEquivalentTo(1))))
	}).WithTimeout(patience).Should(Succeed())

	before, end := r.writes.Load(), r.clock.Now().Add(10*time.Minute)
	Expect(before).To(BeNumerically(">", len(states)), "writes are counted")
	for i := 0; r.clock.Now().Before(end); i++ {
		if i%10 == 0 {
			r.clients.Redial() // restarts every watch
		}
		r.reconcileAll(ctx, Default, names)
		r.clock.SetTime(r.clock.Now().Add(10 * time.Second))
	}
	Expect(r.writes.Load()).To(Equal(before))
})

var _ = Describe("keeper's metrics", func() {
	It("change with the state they count", func(ctx SpecContext) {
		r := newRig(ctx)
		for _, cm := range []corev1.ConfigMap{
			{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
			{
				ObjectMeta: metav1.ObjectMeta{Name: "fixed", Labels: map[string]string{watchv1.WatcherLabel: "fixed"}},
				Immutable:  new(true),
			},
		} {
			_, err := r.core.ConfigMaps(r.namespace).Create(ctx, &cm, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		r.run(ctx)
		specs := map[string]string{
			"static": `configData: {a: b}`, "pending": `sources: [{key: a, url: rules.example.com}]`,
			"exists":    `configData: {a: b}, target: {name: theirs}`,
			"fixed":     `configData: {a: b}, target: {name: fixed}`,
			"suspended": `suspend: true, sources: [{key: a, url: rules.example.com}]`,
		}
		var names []string
		for name, spec := range specs {
			names = append(names, name)
			r.apply(ctx, name, spec)
			r.eventuallyHas(ctx, name, 1)
		}
		r.reconcileAll(ctx, Default, names)
		r.byHand(ctx, "static-config", `{"data":{"a":"by hand"}}`)
		Eventually(ctx, func(g Gomega) {
			r.reconcileAll(ctx, g, []string{"static"})
			g.Expect(r.data(ctx, "static-config")).To(Equal(map[string]string{"a": "b"}))
		}).WithTimeout(patience).Should(Succeed())
		r.edit(ctx, "static", `{"spec":{"configData":{"a":"c"}}}`)
		r.eventuallyHas(ctx, "static", 2)
		r.once(http.MethodPatch, "/configmaps/static-config?",
			func() { r.byHand(ctx, "static-config", `{"data":{"mine":"kept"}}`) })
		_, err := r.reconcile(ctx, types.NamespacedName{Namespace: r.namespace, Name: "static"})
		Expect(err).To(HaveOccurred())

		held := map[string]OmegaMatcher{
			`applies_total{outcome="applied"}`:  BeNumerically("==", 3),
			`applies_total{outcome="repaired"}`: BeNumerically("==", 1),
			`applies_total{outcome="refused"}`:  BeNumerically("==", 1),
			`applies_total{outcome="failed"}`:   BeNumerically(">=", 1),
			`status_patches_total`:              BeNumerically("==", len(specs)),
			`watchers{state="ready"}`:           BeNumerically("==", 1),
			`watchers{state="progressing"}`:     BeNumerically("==", 1),
			`watchers{state="stalled"}`:         BeNumerically("==", 2),
			`watchers{state="suspended"}`:       BeNumerically("==", 1),
			`not_ready_seconds`:                 BeNumerically(">=", 3600),
			`watch_silence_seconds`:             BeNumerically(">=", 3600),
		}
		Eventually(ctx, func(g Gomega) { // a delivery in the meantime resets the silence
			r.clock.SetTime(r.clock.Now().Add(time.Hour))
			for series, value := range held {
				g.Expect(suitetest.MetricValue(r.registry, own+series)).To(value, series)
			}
		}).WithTimeout(patience).Should(Succeed())
		for _, d := range Metrics() {
			if !strings.HasPrefix(d.Name, own) {
				continue // shared by all services
			}
			named := append([]string{}, elsewhere...)
			for series := range held {
				name, _, _ := strings.Cut(series, "{")
				named = append(named, own+name)
			}
			Expect(named).To(ContainElement(d.Name), "a spec that changes it")
		}
	})

	It("report the leader", func(ctx SpecContext) {
		r := newRig(ctx)
		leading, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- r.lead(process.NewHealth().Part("election"))(leading) }()
		lead := func() (float64, error) { return suitetest.MetricValue(r.registry, own+"leader") }
		Eventually(ctx, lead).WithTimeout(patience).Should(Equal(1.0))
		stop()
		Eventually(ctx, ended).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(lead()).To(BeZero())
	})
})
