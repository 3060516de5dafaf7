package watchers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

var _ = Describe("The rules of a Watcher", func() {
	It("keep the last good value and give their message, and a selection stores a part", func(ctx SpecContext) {
		h := open(ctx)
		page := h.Origin.Page("/rules").Says(`{"rules":[1]}`)
		spec := func(rule string) string {
			return `interval: 1h, sources: [{key: rules.json, url: "` + page.URL() + `", interval: 2h, select: json.rules,
				expect: [{rule: size(body) > 0}, {rule: "` + rule + `", message: no rules yet}]}]`
		}
		w := h.apply(ctx, "ruled", spec("size(json.rules) > 0"))
		w.eventuallyReady(ctx)
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1]"))
		Expect(h.configMap(ctx, "ruled-config").Annotations).
			To(HaveKeyWithValue("x-kv8s.io/curl-refresh", "1h rules.json=2h"))

		page.Says("<html>Sign in, token S3CR3T</html>")
		w.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"1"}}}`)
		w.eventually(ctx, watchv1.ConditionFresh, "False/ContentRejected")
		Expect(w.message(ctx, watchv1.ConditionFresh)).
			To(And(ContainSubstring("(no rules yet)"), Not(ContainSubstring("S3CR3T"))))
		Expect(w.condition(ctx, watchv1.ConditionReady)).To(Equal("True/Ready"))
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1]"))

		page.Says(`{"rules":[1,2]}`)
		w.patch(ctx, `{"metadata":{"annotations":{"x-kv8s.io/curl-now":"2"}}}`)
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1,2]"))

		w.apply(ctx, spec("size(json.rules) > 2"))
		w.eventually(ctx, watchv1.ConditionFresh, "False/ContentRejected")
		w.apply(ctx, spec("size(json.rules) + 1"))
		w.eventually(ctx, watchv1.ConditionStalled, "True/InvalidExpression")
		Expect(w.message(ctx, watchv1.ConditionStalled)).To(ContainSubstring(
			"annotation curl-expect, line 2 (key rules.json): expected a boolean, column 18"))
		Expect(h.data(ctx, "ruled-config")).To(HaveKeyWithValue("rules.json", "[1,2]"))
		w.apply(ctx, spec("size(json.rules) > 1"))
		w.eventuallyReady(ctx)
		w.eventually(ctx, watchv1.ConditionFresh, "True/Fresh")
	})
})
