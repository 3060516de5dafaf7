package engine_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

var _ = Describe("A want with rules", func() {
	It("publishes the selected part of a body, and nothing while that stays the same", func() {
		o, f := serve(says(`{"at":1,"data":{"limits":[1]}}`)), w.fetcher()
		want := w.want(o.URL, every(10*time.Minute), selects("json.data.limits"))
		f.fetch(want)
		Expect(string(w.lastResult().GetContent().GetBody())).To(Equal("[1]"))
		Expect(w.lastResult().GetContent().GetSha256()).To(Equal(pipeline.Digest("[1]")))
		Expect(w.lastResult().GetContent().GetRules()).To(Equal(rule.SetOf(want).Digest()))
		results := len(w.results())
		o.now(says(`{"at":2,"data":{"limits":[1]}}`))
		f.elapse()
		Expect(w.results()).To(HaveLen(results))
	})

	It("requests a body again that may no longer pass", func() {
		o, f := serve(tagged(`"a"`, "good")), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), expects(`now < timestamp("`+
			w.clock.Now().Add(time.Minute).UTC().Format(time.RFC3339)+`")`)))
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
		f.elapse()
		Expect(w.lastResult().GetFailure().GetRule()).To(BeEquivalentTo(1))
	})
})
