package engine_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
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

	// elapse fires the pending timer and lets the fetcher handle the due.
	elapse := func() {
		GinkgoHelper()
		t := w.timer()
		Expect(t).NotTo(BeNil())
		w.clock.Advance(t.at.Sub(w.clock.Now()))
		w.fire(t.Due)
		f.step()
	}
	failures := func() (all []*v1.Failure) {
		for _, r := range w.results() {
			all = append(all, r.GetFailure())
		}
		return all
	}

	It("is repeated later, and published after the third", func() {
		f := w.fetcher(func(o *fetcherOptions) { o.config.MaxAttempts = 6 })
		o := serve(fails(http.StatusInternalServerError))
		sequence := w.publish(w.want(o.URL))

		f.step()

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
		elapse()
		t = w.timer()
		Expect(t.GetAttempts()).To(BeEquivalentTo(2))
		Expect(t.GetWithheld()).To(BeTrue())
		Expect(t.at.Sub(w.clock.Now())).To(Equal(4*time.Second), "back-off doubles")
		Expect(t.GetFirstFailedAt().AsTime()).To(Equal(first.AsTime()))
		Expect(w.results()).To(BeEmpty(), "it may be over with the next attempt")

		w.clock.Advance(time.Minute)
		w.fire(t.Due)
		f.step()
		t = w.timer()
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		Expect(t.GetWithheld()).To(BeFalse())
		told := w.result()
		Expect(told.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		Expect(told.GetFailure().GetStatusCode()).To(BeEquivalentTo(500))
		Expect(told.GetFailure().GetAttempts()).To(BeEquivalentTo(3))
		Expect(told.GetFailure().GetHost()).To(Equal(pipeline.HiddenHost))
		Expect(told.GetFailure().GetGaveUp()).To(BeFalse())
		Expect(told.GetFailure().GetNextAt().AsTime()).To(BeTemporally("==", t.at), "a person wants to know what comes next")

		w.fire(t.Due)
		f.step()
		Expect(w.results()).To(HaveLen(1), "the class is no news")
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
		w.publish(w.want(o.URL, every(time.Minute)))
		f.step()
		for range 10 {
			elapse()
		}
		Expect(o.gets.Load()).To(BeEquivalentTo(11))
		Expect(w.results()).To(HaveLen(1), "the body")
		Expect(w.timer().GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_UNSPECIFIED))
	})

	It("has its end published if it was published, even if another one was withheld since", func() {
		var status atomic.Int32
		status.Store(http.StatusNotFound)
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			switch status.Load() {
			case 0:
				panic(http.ErrAbortHandler)
			case http.StatusOK:
				tagged(`"v1"`, "hello there")(w, r)
			default:
				fails(int(status.Load()))(w, r)
			}
		})
		w.due(w.want(o.URL, every(time.Minute)), &v1.Due{
			Cause: v1.Cause_CAUSE_REFRESH, Cached: &v1.Cached{Sha256: digest("hello there"), Etag: `"v1"`},
		})
		f.step()
		Expect(failures()).To(HaveLen(1))
		status.Store(0)
		elapse()
		Expect(failures()).To(HaveLen(1))
		Expect(w.timer().GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_BAD_STATUS))
		status.Store(http.StatusOK)
		elapse()
		results := w.results()
		Expect(results).To(HaveLen(2))
		Expect(results[1].GetUnmodified()).NotTo(BeNil())
	})

	It("leaves a dead letter, a published failure and a slow recheck if it was the last", func() {
		o := serve(fails(http.StatusInternalServerError))
		w.publish(w.want(o.URL))
		f.step()
		began := w.clock.Now()
		elapse()
		Expect(w.deadLetters()).To(BeEmpty())
		elapse()

		Expect(o.gets.Load()).To(BeEquivalentTo(3))
		Expect(w.deadLetters()).To(HaveLen(1))
		deadLetter := w.deadLetters()[0]
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
		w.publish(w.want(o.URL, every(10*time.Minute)))
		f.step()
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetGaveUp()).To(BeTrue())
		Expect(w.deadLetters()).To(HaveLen(1))
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		Expect(t.at.Sub(w.clock.Now())).To(BeNumerically("~", 10*time.Minute, 5*time.Minute))

		since := t.GetFirstFailedAt()
		w.clock.Advance(time.Minute)
		w.fire(t.Due)
		f.step()
		Expect(failures()).To(HaveLen(1), "still failing for the same is no news")
		Expect(w.deadLetters()).To(HaveLen(2))
		Expect(w.timer().GetFirstFailedAt().AsTime()).To(Equal(since.AsTime()))
	})

	It("is published again when the key has become stale, and then at most every 30 min", func() {
		w.publish(w.want(serve(fails(http.StatusNotFound)).URL, every(5*time.Minute)))
		f.step()
		began := w.clock.Now()
		var published []time.Duration
		for w.clock.Now().Sub(began) < 2*time.Hour {
			before := len(failures())
			elapse()
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

	It("is published again if a person has asked for a fetch", func() {
		o := serve(fails(http.StatusNotFound))
		w.publish(w.want(o.URL, func(w *v1.Want) { w.Now, w.Cause = "please", v1.Cause_CAUSE_NOW }))
		f.step()
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetAgain()).To(BeTrue())
		elapse()
		Expect(failures()[1:]).To(HaveLen(1), "the recheck after an hour")
		Expect(failures()[1].GetAgain()).To(BeTrue())
	})

	It("is published at once, with the end of the pause, if the host requests a long one", func() {
		w.publish(w.want(serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1200")
			w.WriteHeader(http.StatusTooManyRequests)
		}).URL))
		f.step()
		Expect(w.timer().GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
		Expect(w.timer().GetWithheld()).To(BeFalse())
		Expect(failures()).To(HaveLen(1))
		Expect(failures()[0].GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
		Expect(failures()[0].GetNextAt().AsTime()).To(BeTemporally("~", w.clock.Now().Add(20*time.Minute), 5*time.Minute))
	})

	It("recovers by itself at the recheck", func() {
		var healthy atomic.Bool
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			if healthy.Load() {
				says("hello there")(w, r)
				return
			}
			fails(http.StatusGone)(w, r)
		})
		w.publish(w.want(o.URL))
		f.step()
		healthy.Store(true)
		elapse()
		Expect(w.results()).To(HaveLen(2))
		Expect(w.results()[1].GetContent().GetBody()).To(BeEquivalentTo("hello there"))
	})

	It("holds up nothing if the stream refuses its dead letter", func() {
		Expect(w.js.DeleteStream(w.ctx, pipeline.Failures)).To(Succeed())
		bad, good := serve(fails(http.StatusNotFound)), serve(says("hello there"))
		f.run()
		for i := range 100 {
			w.publish(w.want(fmt.Sprintf("%s/%d", bad.URL, i), named("bad", i), in("bad")))
		}
		for i := range 5 {
			w.publish(w.want(fmt.Sprintf("%s/%d", good.URL, i), named("good", i), in("good")))
		}
		Eventually(good.gets.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		Eventually(func() float64 { return f.metric("curlmethat_fetcher_dead_letters_dropped_total", "") }).
			Should(BeEquivalentTo(100))
		Eventually(w.pending).Should(BeZero())
	})

	It("is dropped if its want was replaced", func() {
		o := serve(func(rw http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			if r.URL.Path == "/old" {
				w.publish(w.want("http://" + r.Host + "/new"))
			}
			fails(http.StatusNotFound)(rw, r)
		})
		w.publish(w.want(o.URL + "/old"))
		f.step()
		Expect(w.results()).To(BeEmpty())
		Expect(w.deadLetters()).To(BeEmpty())
		Expect(w.timer()).To(BeNil())
	})

	It("is logged with host, reason and status, without secrets", func() {
		var log bytes.Buffer
		f = w.fetcher(func(o *fetcherOptions) { o.log = &log })
		o := serve(fails(http.StatusForbidden))
		w.publish(w.want(strings.Replace(o.URL, "127.0.0.1", "localhost", 1) + "/path?token=hidden"))
		f.step()
		Expect(strings.Count(log.String(), "\n")).To(Equal(1))
		w.publish(w.want(o.URL + "/path?token=hidden"))
		f.step()
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
		asking := func(status int, value string) *origin {
			return serve(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", value)
				fails(status)(w, r)
			})
		}

		DescribeTable("is not repeated sooner", func(status int, value string, wait time.Duration) {
			w.publish(w.want(asking(status, value).URL))
			f.step()
			Expect(w.timer().at.Sub(w.clock.Now())).To(And(BeNumerically(">=", wait), BeNumerically("<=", wait+time.Second)))
		},
			Entry("than requested", http.StatusServiceUnavailable, "120", 2*time.Minute),
			Entry("than the limit", http.StatusTooManyRequests, "1000000000000", time.Hour),
		)

		It("pauses its host for a short time, and no other one", func() {
			slow := asking(http.StatusTooManyRequests, "120")
			w.publish(w.want(slow.URL))
			f.step()
			gets := slow.gets.Load()

			w.publish(w.want(slow.URL + "/another"))
			f.step()
			t := w.timer()
			Expect(slow.gets.Load()).To(Equal(gets), "asked although told to wait")
			Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
			Expect(t.GetAttempts()).To(BeZero(), "no attempt was made")
			Expect(t.GetStatusCode()).To(BeZero(), "no attempt was made")
			Expect(t.GetWaitsFor()).To(Equal(v1.WaitsFor_WAITS_FOR_PAUSE))
			Expect(t.at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute), "its wish bounds the URL that asked")

			w.publish(w.want(serve(says("hello there")).URL, named("other", 0)))
			f.step()
			results := w.results()
			Expect(results[len(results)-1].GetContent()).NotTo(BeNil())

			Eventually(slow.gets.Load).WithTimeout(5 * time.Second).Should(Equal(gets + 1))
		})

		It("does not pause a host that redirects to the one that requests it", func() {
			slow := asking(http.StatusTooManyRequests, "3600")
			redirects := serve(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/fine" {
					says("hello there")(w, r)
					return
				}
				http.Redirect(w, r, slow.URL, http.StatusFound)
			})
			w.publish(w.want(redirects.URL + "/elsewhere"))
			f.step()
			Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour),
				"the URL itself is not repeated sooner than asked")

			w.publish(w.want(redirects.URL+"/fine", named("other", 0)))
			f.step()
			Expect(w.contents()).To(Equal(1))
		})

		It("does not delay one fetch that a person asks for", func() {
			slow := asking(http.StatusTooManyRequests, "3600")
			w.publish(w.want(slow.URL))
			f.step()
			now := func(w *v1.Want) { w.Cause, w.Now = v1.Cause_CAUSE_NOW, "now" }
			w.publish(w.want(slow.URL+"/another", now))
			f.step()
			Expect(slow.gets.Load()).To(BeEquivalentTo(2))
			Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
			Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically(">=", time.Hour))

			waiting := w.want(slow.URL + "/third")
			sequence := w.publish(waiting)
			f.step()
			Expect(w.timer().GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
			Expect(slow.gets.Load()).To(BeEquivalentTo(2))
			_, err := w.client.PublishDue(w.ctx, &v1.Due{Want: waiting, WantSequence: sequence, Cause: v1.Cause_CAUSE_NOW},
				"refetch")
			Expect(err).NotTo(HaveOccurred())
			f.step()
			Expect(slow.gets.Load()).To(BeEquivalentTo(3), "as refetch asks")
		})
	})
})
