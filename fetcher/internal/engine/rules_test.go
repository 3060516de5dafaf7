package engine_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

func expects(rules ...string) func(*v1.Want) { return func(w *v1.Want) { w.Expect = rules } }

func selects(text string) func(*v1.Want) { return func(w *v1.Want) { w.Select = text } }

var _ = Describe("A want with rules", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("publishes a body that meets them, with their digest", func() {
		o := serve(says(`{"rules":[1]}`))
		want := w.want(o.URL, every(10*time.Minute), expects("size(json.rules) > 0", "size(body) > 1"))
		w.fetcher().fetch(want)
		Expect(string(w.result().GetContent().GetBody())).To(Equal(`{"rules":[1]}`))
		Expect(w.result().GetContent().GetRules()).To(Equal(rule.Of(want).Digest()))
		Expect(w.timer().GetCached().GetSize()).To(BeEquivalentTo(13))
	})

	It("rejects another body until the next interval, with the number of the rule", func() {
		o := serve(says(`<html>token</html>`))
		w.fetcher().fetch(w.want(o.URL, every(10*time.Minute), expects("size(body) > 1", "size(json.rules) > 0")))
		f := w.result().GetFailure()
		Expect(f.GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED))
		Expect(f.GetDetail()).To(Equal(v1.FailureDetail_FAILURE_DETAIL_NOT_JSON))
		Expect(f.GetRule()).To(BeEquivalentTo(2))
		Expect(f.GetGaveUp()).To(BeTrue())
		Expect(w.deadLetters()).To(HaveExactElements(HaveField("Snippet", BeEquivalentTo(`<html>token</html>`))))
		Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		Expect(w.timer().GetCached()).To(BeNil())
	})

	It("tries again soon after a rule that takes too much time", func() {
		slow := strings.Repeat("[0,0,0,0,0,0,0,0,0,0].all(x,", 8) + "size(body)>0" + strings.Repeat(")", 8)
		o := serve(says("body"))
		w.fetcher().fetch(w.want(o.URL, every(10*time.Minute), expects(slow)))
		Expect(w.results()).To(BeEmpty(), "a failure that may be over soon is withheld")
		Expect(w.deadLetters()).To(BeEmpty())
		Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
		Expect(w.timer().GetDetail()).To(Equal(v1.FailureDetail_FAILURE_DETAIL_COSTLY))
	})

	It("rejects a body that is larger than expressions may read", func() {
		o := serve(says(strings.Repeat("x", rule.DefaultMaxBody+1)))
		w.fetcher().fetch(w.want(o.URL, expects("true")))
		Expect(w.result().GetFailure().GetLimitBytes()).To(BeEquivalentTo(rule.DefaultMaxBody))
	})

	It("compares the size of the body with the size of the current value", func() {
		o, f := serve(says("ten bytes.")), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), expects("size(body) * 2 > heldSize"),
			func(w *v1.Want) { w.HeldSize = 12 }))
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
		o.now(says("four"))
		f.elapse()
		Expect(w.lastResult().GetFailure().GetRule()).To(BeEquivalentTo(1))
		o.now(says("seven.."))
		f.elapse()
		Expect(string(w.lastResult().GetContent().GetBody())).To(Equal("seven.."))
	})

	It("publishes the selected part of a body, and nothing while that stays the same", func() {
		o, f := serve(says(`{"at":1,"data":{"limits":[1]}}`)), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), selects("json.data.limits")))
		Expect(string(w.lastResult().GetContent().GetBody())).To(Equal("[1]"))
		Expect(w.lastResult().GetContent().GetSha256()).To(Equal(digest("[1]")))
		results := len(w.results())
		o.now(says(`{"at":2,"data":{"limits":[1]}}`))
		f.elapse()
		Expect(w.results()).To(HaveLen(results))
		o.now(says(`{"at":2}`))
		f.elapse()
		Expect(w.lastResult().GetFailure().GetRule()).To(BeZero())
		Expect(w.lastResult().GetFailure().GetDetail()).To(Equal(v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE))
	})

	It("requests a body again that may no longer pass", func() {
		o, f := serve(tagged(`"a"`, "good")), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), expects(`now < timestamp("`+
			w.clock.Now().Add(time.Minute).UTC().Format(time.RFC3339)+`")`)))
		Expect(w.lastResult().GetContent()).NotTo(BeNil())
		f.elapse()
		Expect(w.lastResult().GetFailure().GetRule()).To(BeEquivalentTo(1))
	})

	It("keeps a body that a 304 confirms", func() {
		o, f := serve(tagged(`"a"`, "good")), w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute), expects(`body == "good"`)))
		f.elapse()
		Expect(w.timer().GetCached().GetSize()).To(BeEquivalentTo(4))
		Expect(w.lastResult().GetFailure()).To(BeNil())
	})
})
