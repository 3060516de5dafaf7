package watchers_test

import (
	"context"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Flux, Argo CD and others use only these rules to assess a resource.
var _ = Describe("Generic tools", func() {
	health := func(ctx context.Context, w *watcher) string {
		GinkgoHelper()
		result := suitetest.Must(status.Compute(w.raw(ctx)))
		return result.Status.String()
	}

	It("see Watchers that are up to date, in progress and failed", func(ctx SpecContext) {
		h := open(ctx)
		page, held, bad := h.Origin.Page("/good").Says("good"), h.Origin.Page("/held").Says("held"), h.Origin.Page("/bad").
			Fails(404)
		release := held.Hold()
		h.Create(ctx, "theirs")
		h.Create(ctx, "fixed", world.Labelled(watchv1.WatcherLabel, "immutable"), world.Immutable())
		source := func(url string) string { return `sources: [{key: a, url: "` + url + `"}]` }
		good := h.apply(ctx, "good", source(page.URL()))
		good.eventuallyReady(ctx)
		for name, of := range map[string]struct{ spec, kind, condition, health string }{
			"pending":   {source(held.URL()), "Reconciling", "True/Progressing", "InProgress"},
			"failing":   {source(bad.URL()), "Reconciling", "True/FetchFailed", "InProgress"},
			"denied":    {source("http://10.0.0.1"), "Stalled", "True/AddressDenied", "Failed"},
			"exists":    {`configData: {a: b}, target: {name: theirs}`, "Stalled", "True/TargetExists", "Failed"},
			"owned":     {`configData: {a: b}, target: {name: good-config}`, "Stalled", "True/TargetOwned", "Failed"},
			"invalid":   {source("https://"), "Stalled", "True/InvalidSource", "Failed"},
			"immutable": {`configData: {a: b}, target: {name: fixed}`, "Stalled", "True/TargetImmutable", "Failed"},
			"large":     {`configData: {a: "` + strings.Repeat("x", 1100<<10) + `"}`, "Stalled", "True/TooLarge", "Failed"},
			"refused":   {`configData: {a: b}, target: {name: kube-root-ca.crt}`, "Stalled", "True/TargetRefused", "Failed"},
			"suspended": {`suspend: true, ` + source(page.URL()), "Ready", "Unknown/Suspended", "InProgress"},
			"static":    {`configData: {a: b}`, "Ready", "True/Ready", "Current"},
		} {
			w := h.apply(ctx, name, of.spec)
			w.eventually(ctx, of.kind, of.condition)
			Expect(health(ctx, w)).To(Equal(of.health), name)
		}
		Expect(health(ctx, good)).To(Equal("Current"))
		page.Fails(404)
		good.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`)
		good.eventually(ctx, "Fresh", "False/BadStatus")
		Expect(health(ctx, good)).To(Equal("Current"), "the last good value stays")
		release()
	})

	It("wait for the applied generation", func(ctx SpecContext) {
		h := open(ctx)
		w := h.apply(ctx, "stopped", `configData: {a: one}`)
		w.eventuallyReady(ctx)
		h.keeper.ShouldStop(ctx)
		w.apply(ctx, `configData: {a: two}`)
		Expect(health(ctx, w)).To(Equal("InProgress"))
	})
})
