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
	"google.golang.org/protobuf/types/known/timestamppb"

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

	It("to a due makes the writer read the object first, because the status in the want is old", func() {
		o := serve(says("hello there"))
		sequence := w.fetcher().fetchDue(w.want(o.URL), &v1.Due{Cause: v1.Cause_CAUSE_REFRESH})
		r := w.result()
		Expect(r.GetSequence()).To(Equal(sequence), "the fence is that of the trigger")
		Expect(r.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		Expect(r.GetWant().GetStatus()).To(BeEmpty())
		Expect(r.GetWant().GetReadFirst()).To(BeTrue())
	})

	It("sets the timer of the next refresh, with the validators for a conditional GET", func() {
		o := serve(tagged(`"v1"`, "hello there"))
		sequence := w.fetcher().fetch(w.want(o.URL, every(10*time.Minute)))
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		Expect(t.GetWantSequence()).To(Equal(sequence))
		Expect(t.GetWant().GetStatus()).To(BeEmpty())
		Expect(t.GetCached().GetSha256()).To(Equal(digest("hello there")))
		Expect(t.GetCached().GetEtag()).To(Equal(`"v1"`))
		Expect(t.at).To(BeTemporally("~", w.clock.Now().Add(10*time.Minute), 5*time.Minute))
		Expect(w.results()).To(HaveLen(1))
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

	It("with the same body after failures publishes the recovery", func() {
		o := serve(says("hello there"))
		w.fetcher().fetchDue(w.want(o.URL, every(10*time.Minute)), &v1.Due{
			Cached:   &v1.Cached{Sha256: digest("hello there")},
			Reported: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 503, Attempts: 2,
			FirstFailedAt: timestamppb.New(w.clock.Now().Add(-time.Minute)),
		})
		Expect(w.result().GetUnmodified().GetSha256()).To(Equal(digest("hello there")))
		t := w.timer()
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_UNSPECIFIED))
		Expect(t.GetStatusCode()).To(BeZero())
		Expect(t.GetAttempts()).To(BeZero())
		Expect(t.GetFirstFailedAt()).To(BeNil())
	})

	It("is refreshed after the interval, whatever its caches may do", func() {
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=31536000, immutable")
			says("hello there")(w, r)
		})
		f := w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute)))
		Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically("<=", 10*time.Minute))

		By("starting the timer of a key in sync no later")
		f.fetch(w.want(o.URL, named("in-sync", 0), every(24*time.Hour), func(w *v1.Want) {
			w.Cached = &v1.Cached{Sha256: digest("hello there")}
		}))
		timer := w.timerOf(pipeline.Key{Namespace: key.Namespace, Name: "in-sync-0000", Key: key.Key})
		Expect(timer.at.Sub(w.clock.Now())).To(BeNumerically("<=", 24*time.Hour))
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

	It("with another digest than required is a failure, and the last good body stays", func() {
		o := serve(tagged(`"evil"`, "evil"))
		w.fetcher().fetchDue(w.want(o.URL, every(10*time.Minute), func(w *v1.Want) { w.Sha256 = digest("hello there") }),
			&v1.Due{Cached: &v1.Cached{Sha256: digest("hello there"), Etag: `"good"`}})
		Expect(w.result().GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH))
		Expect(w.result().GetFailure().GetGaveUp()).To(BeTrue())
		Expect(w.timer().GetCached().GetSha256()).To(Equal(digest("hello there")))
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
