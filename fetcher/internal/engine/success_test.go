package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func every(d time.Duration) func(*v1.Want) {
	return func(w *v1.Want) { w.Refresh = durationpb.New(d) }
}

// tagged responds with an ETag, and with 304 to its validator.
func tagged(tag, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, body)
	}
}

var _ = Describe("A good response", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("is published with everything that the fast path of the writer needs", func() {
		o := serve(says("hello there"))
		want := w.want(o.URL)
		sequence := w.fetcher().fetch(want)
		r := w.result()
		Expect(r.GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Expect(r.GetContent().GetSha256()).To(Equal(digest("hello there")))
		Expect(r.GetSequence()).To(Equal(sequence))
		Expect(r.GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
		Expect(r.GetWant().GetEpoch()).To(Equal(w.epoch))
		Expect(r.GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(r.GetWant().GetResourceVersion()).To(Equal("7"))
		Expect(r.GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.timer()).To(BeNil(), "there is no refresh")
		Eventually(w.pending).Should(BeZero())
	})

	DescribeTable("with the same body to a refresh publishes only the next timer, if it is a",
		func(handler http.HandlerFunc, etag string) {
			f := w.fetcher()
			f.fetch(w.want(serve(handler).URL, every(10*time.Minute)))
			Expect(w.takeResults()).To(HaveLen(1))
			f.elapse()
			Expect(w.results()).To(BeEmpty())
			Expect(w.timer().GetCached().GetSha256()).To(Equal(digest("hello there")))
			Expect(w.timer().GetCached().GetEtag()).To(Equal(etag))
			Eventually(w.pending).Should(BeZero())
		},
		Entry("304", tagged(`"v1"`, "hello there"), `"v1"`),
		Entry("200", says("hello there"), ""),
	)

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
		Expect(conditional.Load()).To(BeTrue(), "the unconditional GET renews the trust")
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

	It("to a refused condition ends conditional GETs of the URL", func() {
		var refused atomic.Int32
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				refused.Add(1)
				fails(http.StatusPreconditionFailed)(w, r)
				return
			}
			tagged(`"v1"`, "hello there")(w, r)
		})
		f := w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute)))
		for range 5 {
			f.elapse()
			Expect(w.timer().GetFirstFailedAt()).To(BeNil())
		}
		Expect(refused.Load()).To(BeEquivalentTo(1))
	})

	DescribeTable("is dropped if its want was replaced during the fetch",
		func(change func(*v1.Want)) {
			o, f := serve(w.replacing(says("hello there"), change)), w.fetcher()
			f.fetch(w.want(o.URL+"/old", change))
			Expect(w.results()).To(BeEmpty())
			Expect(w.timer()).To(BeNil())

			f.step() // the new want is its own trigger
			Expect(w.result().GetWant().GetUrl()).To(HaveSuffix("/new"))
			Expect(w.result().GetContent()).NotTo(BeNil())
			Eventually(w.pending).Should(BeZero())
		},
		Entry("with refresh", every(10*time.Minute)),
		Entry("without refresh", func(*v1.Want) {}),
	)

	It("is published even if a replica does not have its want yet", func() {
		w.replicaLags()
		w.fetcher().fetch(w.want(serve(says("hello there")).URL))
		Expect(w.result().GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Eventually(w.pending).Should(BeZero())
	})

	It("is dropped if its key is no longer wanted", func() {
		o := serve(func(rw http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			_, last, err := w.client.LastWant(w.ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.client.PublishTombstone(w.ctx, key, last)).Error().NotTo(HaveOccurred())
			says("late")(rw, r)
		})
		f := w.fetcher()
		f.fetch(w.want(o.URL))
		f.step()
		Expect(w.results()).To(BeEmpty())
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

var _ = Describe("Metrics", func() {
	It("observe the delay of a regular fetch, and nothing for a key without a successful one", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		f := w.fetcher()
		f.fetch(w.want(serve(says("hello there")).URL, every(10*time.Minute)))
		count, _ := f.histogram("curlmethat_fetcher_staleness_seconds")
		Expect(count).To(BeZero(), "the first fetch cannot be late")
		timer := w.timer().Due
		Expect(timer.GetFreshUntil().AsTime()).To(BeTemporally(">", w.clock.Now()))
		w.clock.Advance(timer.GetFreshUntil().AsTime().Sub(w.clock.Now()) + 3*time.Hour)
		w.fire(timer)
		f.step()
		count, sum := f.histogram("curlmethat_fetcher_staleness_seconds")
		Expect(count).To(BeEquivalentTo(1))
		Expect(sum).To(Equal((3 * time.Hour).Seconds()))
	})
})
