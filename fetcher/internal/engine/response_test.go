package engine_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

var _ = Describe("A good response", func() {
	It("is published with everything that the fast path of the writer needs", func() {
		o := serve(says("hello there"))
		want := w.want(o.URL)
		sequence := w.fetcher().fetch(want)
		r := w.result()
		Expect(r.GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Expect(r.GetContent().GetSha256()).To(Equal(pipeline.Digest("hello there")))
		Expect(r.GetSequence()).To(Equal(sequence))
		Expect(r.GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
		Expect(r.GetWant().GetEpoch()).To(Equal(w.epoch))
		Expect(r.GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(r.GetWant().GetResourceVersion()).To(Equal("7"))
		Expect(r.GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.timer()).To(BeNil(), "there is no refresh")
		Eventually(w.pending).Should(BeZero())
	})

	It("is followed by a GET within the interval of the annotation, whatever Cache-Control and Expires say", func() {
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/fresh" {
				w.Header().Set("Cache-Control", "no-cache")
				http.Redirect(w, r, "/fresh", http.StatusFound)
				return
			}
			w.Header().Set("Cache-Control", "public, max-age=31536000, s-maxage=31536000, immutable")
			w.Header().Set("Expires", "Fri, 31 Dec 2100 23:59:59 GMT")
			says("hello there")(w, r)
		})
		f := w.fetcher()
		for _, path := range []string{"/fresh", "/moved"} {
			f.fetch(w.want(o.URL+path, every(10*time.Minute)))
			for range 2 { // the first interval has a random part
				Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically("<=", 11*time.Minute), path)
				f.elapse()
			}
		}
	})

	It("makes GETs conditional for less than a day, and not after a failure or if a person requests one", func() {
		var conditional atomic.Bool
		handler := func(w http.ResponseWriter, r *http.Request) {
			conditional.Store(r.Header.Get("If-None-Match") != "")
			tagged(`"v1"`, "hello there")(w, r)
		}
		o := serve(handler)
		f := w.fetcher()
		f.fetch(w.want(o.URL, every(time.Hour)))
		since, refreshes := w.clock.Now(), 0
		for ; w.clock.Now().Sub(since) < 24*time.Hour; refreshes++ {
			f.elapse()
			if !conditional.Load() {
				break
			}
		}
		Expect(refreshes).To(BeNumerically(">", 15))
		Expect(w.clock.Now().Sub(since)).To(BeNumerically("<=", 24*time.Hour))

		f.elapse()
		Expect(conditional.Load()).To(BeTrue(), "the unconditional GET begins another day")
		timer := w.timer()
		timer.Cause = v1.Cause_CAUSE_NOW // as curlctl refetch does
		w.fire(timer.Due)
		f.step()
		Expect(conditional.Load()).To(BeFalse())

		f.elapse()
		Expect(conditional.Load()).To(BeTrue())
		o.now(fails(http.StatusServiceUnavailable))
		f.elapse()
		o.now(handler)
		f.elapse()
		Expect(conditional.Load()).To(BeFalse())
	})

	DescribeTable("or failure is dropped if its want was replaced during the fetch",
		func(respond http.HandlerFunc, change func(*v1.Want)) {
			o, f := serve(w.replacing(respond, change)), w.fetcher()
			f.fetch(w.want(o.URL+"/old", change))
			Expect(w.results()).To(BeEmpty())
			Expect(w.deadLetters()).To(BeEmpty())
			Expect(w.timer()).To(BeNil())

			f.step() // the new want is its own trigger
			Expect(w.result().GetWant().GetUrl()).To(HaveSuffix("/new"))
			Eventually(w.pending).Should(BeZero())
		},
		Entry("with refresh", says("hello there"), every(10*time.Minute)),
		Entry("without refresh", says("hello there"), func(*v1.Want) {}),
		Entry("after the last attempt", fails(http.StatusNotFound), func(*v1.Want) {}),
	)

	DescribeTable("is dropped if its want was removed during the fetch", func(change func(*v1.Want)) {
		w.fetcher().fetch(w.want(serve(func(rw http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			_, last, err := w.client.LastWant(w.ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.client.PublishTombstone(w.ctx, key, last)).Error().NotTo(HaveOccurred())
			says("late")(rw, r)
		}).URL, change))
		Expect(w.results()).To(BeEmpty())
		Expect(w.timer()).To(BeNil())
	},
		Entry("with refresh", every(10*time.Minute)),
		Entry("without refresh", func(*v1.Want) {}),
	)

	It("is published without asking whether its want is still the newest while that is young", func() {
		began := time.Now()
		f := w.fetcher(func(o *fetcherOptions) { o.clock = clockOf(func() time.Time { return began }) })
		w.publish(w.want(serve(says("hello there")).URL))
		w.answersReads(false)
		f.step()
		Expect(w.result().GetContent().GetBody()).To(BeEquivalentTo("hello there"))
	})

	It("is published even if a replica does not have its want yet", func() {
		w.replicaLags()
		w.fetcher().fetch(w.want(serve(says("hello there")).URL))
		Expect(w.result().GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Eventually(w.pending).Should(BeZero())
	})
})

var _ = Describe("A body at the limit of the broker", func() {
	const maxPayload = 64 << 10
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{MaxPayload: maxPayload}, pipeline.Topology{}) })

	It("replaces the status annotation, which the writer then reads", func() {
		body := strings.Repeat("x", maxPayload-8<<10)
		o := serve(says(body))
		w.fetcher().fetch(w.want(o.URL, func(w *v1.Want) { w.Status = strings.Repeat("s", 16<<10) }))
		r := w.result()
		Expect(r.GetContent().GetBody()).To(HaveLen(len(body)))
		Expect(r.GetWant().GetStatus()).To(BeEmpty())
		Expect(r.GetWant().GetReadFirst()).To(BeTrue())
	})

	It("is refused as too large if it still does not fit", func() {
		o := serve(says(strings.Repeat("x", maxPayload)))
		w.fetcher().fetch(w.want(o.URL, every(10*time.Minute)))
		Expect(w.result().GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE))
		Expect(w.deadLetters()).To(HaveLen(1))
		Expect(w.timer().GetCached()).To(BeNil())
		Eventually(w.pending).Should(BeZero())
	})
})

var _ = Describe("A want with rules", func() {
	It("publishes the selected part of a body, and nothing while that stays the same", func() {
		o, f := serve(says(`{"at":1,"data":{"limits":[1]}}`)), w.fetcher()
		want := w.want(o.URL, every(10*time.Minute), selects("json.data.limits"))
		f.fetch(want)
		Expect(string(w.lastResult().GetContent().GetBody())).To(Equal("[1]"))
		Expect(w.lastResult().GetContent().GetSha256()).To(Equal(pipeline.Digest("[1]")))
		Expect(w.lastResult().GetContent().GetRules()).To(Equal(rule.SetOf(want).Hash()))
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
