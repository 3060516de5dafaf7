package keeper

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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
