package engine_test

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A failed attempt", func() {
	var (
		w *world
		f *fetcher
	)
	BeforeEach(func() {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
		f = w.fetcher()
	})

	failures := func() (all []*v1.Failure) {
		for _, r := range w.results() {
			all = append(all, r.GetFailure())
		}
		return all
	}

	It("is retried with back-off, and published after the third", func() {
		f := w.fetcher(func(o *fetcherOptions) { o.config.MaxAttempts = 6 })
		o := serve(fails(http.StatusInternalServerError))
		sequence := f.fetch(w.want(o.URL))
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
		Expect(t.GetAttempts()).To(BeEquivalentTo(1))
		Expect(t.GetWantSequence()).To(Equal(sequence))
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS), "curlctl shows it")
		Expect(t.GetWithheld()).To(BeTrue())
		Expect(t.GetStatusCode()).To(BeEquivalentTo(http.StatusInternalServerError))
		Expect(t.GetFirstFailedAt().AsTime()).To(BeTemporally("==", w.clock.Now()))
		Expect(t.at.Sub(w.clock.Now())).To(Equal(2 * time.Second))
		Eventually(w.pending).Should(BeZero())
		first := t.GetFirstFailedAt()
		f.elapse()
		t = w.timer()
		Expect(t.GetAttempts()).To(BeEquivalentTo(2))
		Expect(t.GetWithheld()).To(BeTrue())
		Expect(t.at.Sub(w.clock.Now())).To(Equal(4*time.Second), "back-off doubles")
		Expect(t.GetFirstFailedAt().AsTime()).To(Equal(first.AsTime()))
		Expect(w.results()).To(BeEmpty(), "the next attempt may succeed")

		f.elapse()
		t = w.timer()
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		Expect(t.GetWithheld()).To(BeFalse())
		published := w.result()
		Expect(published.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		Expect(published.GetFailure().GetStatusCode()).To(BeEquivalentTo(500))
		Expect(published.GetFailure().GetAttempts()).To(BeEquivalentTo(3))
		Expect(published.GetFailure().GetHost()).To(Equal(pipeline.HiddenHost))
		Expect(published.GetFailure().GetGaveUp()).To(BeFalse())
		Expect(published.GetFailure().GetNextAt().AsTime()).To(BeTemporally("==", t.at), "the Event names the next attempt")

		f.elapse()
		Expect(w.results()).To(HaveLen(1), "the class is known")
	})

	It("is not published if the server fails every other time", func() {
		n := 0
		o := serve(func(rw http.ResponseWriter, r *http.Request) {
			if n++; n%2 == 0 {
				rw.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			tagged(`"v1"`, "the same body")(rw, r)
		})
		f.fetch(w.want(o.URL, every(time.Minute)))
		for range 10 {
			f.elapse()
		}
		Expect(o.gets.Load()).To(BeEquivalentTo(11))
		Expect(w.results()).To(HaveLen(1), "the body")
		Expect(w.timer().GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_UNSPECIFIED))
	})

	It("has its recovery published if it was published, even if a later failure was withheld", func() {
		o := serve(fails(http.StatusNotFound))
		f.fetchDue(w.want(o.URL, every(time.Minute)), &v1.Due{
			Cause: v1.Cause_CAUSE_REFRESH, Cached: &v1.Cached{Sha256: digest("hello there"), Etag: `"v1"`},
		})
		Expect(failures()).To(HaveLen(1))
		o.now(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		f.elapse()
		Expect(failures()).To(HaveLen(1))
		Expect(w.timer().GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		o.now(tagged(`"v1"`, "hello there"))
		f.elapse()
		results := w.results()
		Expect(results).To(HaveLen(2))
		Expect(results[1].GetUnmodified()).NotTo(BeNil())
	})

	It("leaves a dead letter, a published failure and the timer of a recheck if it was the last", func() {
		o := serve(fails(http.StatusInternalServerError))
		f.fetch(w.want(o.URL))
		began := w.clock.Now()
		f.elapse()
		Expect(w.deadLetters()).To(BeEmpty())
		f.elapse()

		Expect(o.gets.Load()).To(BeEquivalentTo(3))
		deadLetter := w.deadLetter()
		Expect(deadLetter.GetWant().GetUrl()).To(Equal(o.URL))
		Expect(deadLetter.GetFailure().GetAttempts()).To(BeEquivalentTo(3))
		Expect(deadLetter.GetFailure().GetFirstFailedAt().AsTime()).To(BeTemporally("==", began))
		Expect(deadLetter.GetLastFailedAt().AsTime()).To(BeTemporally("==", w.clock.Now()))
		Expect(string(deadLetter.GetSnippet())).To(ContainSubstring("secret of the server"))
		reason, host, k, err := pipeline.ParseDeadLetter(w.messages(pipeline.Failures)[0].Subject)
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{reason, host, k}).To(Equal([]any{"BadStatus", pipeline.HiddenHost, key}))
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetGaveUp()).To(BeTrue())
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_RECHECK))
		Expect(t.GetAttempts()).To(BeZero())
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		Expect(t.at.Sub(w.clock.Now())).To(Equal(time.Hour))
		Eventually(w.pending).Should(BeZero())
	})

	It("is given up at once until the next refresh if retries are useless", func() {
		o := serve(fails(http.StatusNotFound))
		f.fetch(w.want(o.URL, every(10*time.Minute)))
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetGaveUp()).To(BeTrue())
		Expect(w.deadLetters()).To(HaveLen(1))
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		Expect(t.at.Sub(w.clock.Now())).To(BeNumerically("~", 10*time.Minute, 5*time.Minute))

		since := t.GetFirstFailedAt()
		f.elapse()
		Expect(failures()).To(HaveLen(1), "the reason is known")
		Expect(w.deadLetters()).To(HaveLen(2))
		Expect(w.timer().GetFirstFailedAt().AsTime()).To(Equal(since.AsTime()))
	})

	It("is published again when the key has become stale, and then at most every 30 min", func() {
		f.fetch(w.want(serve(fails(http.StatusNotFound)).URL, every(5*time.Minute)))
		began := w.clock.Now()
		var published []time.Duration
		for w.clock.Now().Sub(began) < 2*time.Hour {
			before := len(failures())
			f.elapse()
			if len(failures()) > before {
				published = append(published, w.clock.Now().Sub(began))
			}
		}
		Expect(len(published)).To(BeNumerically("~", 4, 1), "at %s", published)
		Expect(published[0]).To(And(BeNumerically(">", 15*time.Minute), BeNumerically("<", 26*time.Minute)))
		for n := 1; n < len(published); n++ {
			Expect(published[n] - published[n-1]).To(BeNumerically(">=", 30*time.Minute))
		}
		for n, failure := range failures() {
			Expect(failure.GetAgain()).To(Equal(n > 0), "failure %d", n)
		}
	})

	It("is published again if a person requested the fetch", func() {
		o := serve(fails(http.StatusNotFound))
		f.fetch(w.want(o.URL, func(w *v1.Want) { w.Now, w.Cause = "please", v1.Cause_CAUSE_NOW }))
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetAgain()).To(BeTrue())
		f.elapse()
		Expect(failures()[1:]).To(HaveLen(1), "the recheck after an hour")
		Expect(failures()[1].GetAgain()).To(BeTrue())
	})

	It("is published at once, with the end of the pause, if the host requests a long pause", func() {
		f.fetch(w.want(serve(retryLater(http.StatusTooManyRequests, "1200")).URL))
		Expect(w.timer().GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
		Expect(w.timer().GetWithheld()).To(BeFalse())
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
		Expect(failures()[0].GetNextAt().AsTime()).To(BeTemporally("~", w.clock.Now().Add(20*time.Minute), 5*time.Minute))
	})

	It("is followed by a recovery at the recheck", func() {
		o := serve(fails(http.StatusGone))
		f.fetch(w.want(o.URL))
		o.now(says("hello there"))
		f.elapse()
		Expect(w.results()).To(HaveLen(2))
		Expect(w.results()[1].GetContent().GetBody()).To(BeEquivalentTo("hello there"))
	})

	It("delays nothing if the stream refuses its dead letter", func() {
		Expect(w.js.DeleteStream(w.ctx, pipeline.Failures)).To(Succeed())
		bad, good := serve(fails(http.StatusNotFound)), serve(says("hello there"))
		f.run()
		w.publishMany(bad, 100, "bad")
		w.publishMany(good, 5, "good")
		Eventually(good.gets.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		Eventually(func() float64 { return f.metric("curlmethat_fetcher_dead_letters_dropped_total", "") }).
			Should(BeEquivalentTo(100))
		Eventually(w.pending).Should(BeZero())
	})

	It("is dropped if its want was replaced", func() {
		o := serve(w.replacing(fails(http.StatusNotFound)))
		f.fetch(w.want(o.URL + "/old"))
		Expect(w.results()).To(BeEmpty())
		Expect(w.deadLetters()).To(BeEmpty())
		Expect(w.timer()).To(BeNil())
	})

	It("is logged with host, reason and status, without secrets", func() {
		var log bytes.Buffer
		f = w.fetcher(func(o *fetcherOptions) { o.log = &log })
		o := serve(fails(http.StatusForbidden))
		f.fetch(w.want(strings.Replace(o.URL, "127.0.0.1", "localhost", 1) + "/path?token=hidden"))
		Expect(strings.Count(log.String(), "\n")).To(Equal(1))
		f.fetch(w.want(o.URL + "/path?token=hidden"))
		line := log.String()
		for _, part := range []string{
			`"key":"default/cool.map/my.data"`, `"host":"localhost"`, `"cause":"new"`, `"next":"`,
			`"attempt":1`, `"reason":"BadStatus"`, "403",
		} {
			Expect(line).To(ContainSubstring(part))
		}
		for _, part := range []string{"hidden", "path", "secret", "127.0.0.1"} {
			Expect(line).NotTo(ContainSubstring(part))
		}
	})

	Describe("with Retry-After", func() {
		DescribeTable("is retried after", func(status int, value string, wait time.Duration) {
			f.fetch(w.want(serve(retryLater(status, value)).URL))
			Expect(w.timer().at.Sub(w.clock.Now())).To(And(BeNumerically(">=", wait), BeNumerically("<=", wait+time.Second)))
		},
			Entry("the requested pause", http.StatusServiceUnavailable, "120", 2*time.Minute),
			Entry("the maximum pause", http.StatusTooManyRequests, "1000000000000", time.Hour),
		)

		It("pauses its host for a short time, and no other host", func() {
			slow := serve(retryLater(http.StatusTooManyRequests, "120"))
			f.fetch(w.want(slow.URL))
			gets := slow.gets.Load()

			f.fetch(w.want(slow.URL + "/another"))
			t := w.timer()
			Expect(slow.gets.Load()).To(Equal(gets), "no GET during the pause")
			Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
			Expect(t.GetAttempts()).To(BeZero(), "no attempt was made")
			Expect(t.GetStatusCode()).To(BeZero(), "no attempt was made")
			Expect(t.GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
			Expect(t.at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute), "only the URL waits as requested")

			f.fetch(w.want(serve(says("hello there")).URL, named("other", 0)))
			results := w.results()
			Expect(results[len(results)-1].GetContent()).NotTo(BeNil())

			Eventually(slow.gets.Load).WithTimeout(5 * time.Second).Should(Equal(gets + 1))
		})

		It("does not pause a host that only redirects to the failing one", func() {
			slow := serve(retryLater(http.StatusTooManyRequests, "3600"))
			redirects := serve(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/fine" {
					says("hello there")(w, r)
					return
				}
				http.Redirect(w, r, slow.URL, http.StatusFound)
			})
			f.fetch(w.want(redirects.URL + "/elsewhere"))
			Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour),
				"the URL waits as requested")

			f.fetch(w.want(redirects.URL+"/fine", named("other", 0)))
			Expect(w.contents()).To(Equal(1))
		})

		It("does not delay one fetch that a person requests", func() {
			slow := serve(retryLater(http.StatusTooManyRequests, "3600"))
			f.fetch(w.want(slow.URL))
			now := func(w *v1.Want) { w.Cause, w.Now = v1.Cause_CAUSE_NOW, "now" }
			f.fetch(w.want(slow.URL+"/another", now))
			Expect(slow.gets.Load()).To(BeEquivalentTo(2))
			Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
			Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour))

			waiting := w.want(slow.URL + "/third")
			sequence := f.fetch(waiting)
			Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
			Expect(slow.gets.Load()).To(BeEquivalentTo(2))
			_, err := w.client.PublishDue(w.ctx, &v1.Due{Want: waiting, WantSequence: sequence, Cause: v1.Cause_CAUSE_NOW},
				"refetch")
			Expect(err).NotTo(HaveOccurred())
			f.step()
			Expect(slow.gets.Load()).To(BeEquivalentTo(3), "curlctl refetch does not wait")
		})
	})
})
