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
