package engine_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
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

			Eventually(slow.gets.Load).Should(Equal(gets + 1))
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

const aURL = "https://data.example.com/a"

func TestRefreshComesOncePerInterval(t *testing.T) {
	const interval = 10 * time.Minute
	for _, jitter := range []float64{0, 0.05, 0.25} {
		r := engine.Refresh{Min: time.Second, Jitter: jitter}
		at := r.Next(time.Unix(1_800_000_000, 0), aURL, interval)
		for range 1000 {
			// The timer fires a little late, and the GET takes a while.
			next := r.After(at.Add(12*time.Second), aURL, interval)
			tolerance := time.Duration(float64(interval) * jitter)
			if gap := next.Sub(at); gap < interval-tolerance || gap > interval+tolerance {
				t.Fatalf("jitter %v: refresh after %s instead of %s", jitter, gap, interval)
			}
			at = next
		}
	}
}

func TestNoRefreshComesLaterThanTheIntervalAndItsJitter(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		for _, jitter := range []float64{0, 0.05, 0.25} {
			r := engine.Refresh{Min: time.Second, Jitter: jitter}
			limit := interval + time.Duration(float64(interval)*jitter)
			for i := range 1000 {
				now := time.Unix(1_800_000_000+int64(i)*17, int64(i)*1_234_567)
				pending := r.Next(now, aURL, interval)
				if gap := pending.Sub(now); gap <= 0 || gap > limit {
					t.Fatalf("%s, jitter %v: next slot after %s", interval, jitter, gap)
				}
				after := r.After(now, aURL, interval)
				if gap := after.Sub(now); gap < interval/4 || gap > limit {
					t.Fatalf("%s, jitter %v: refresh after %s", interval, jitter, gap)
				}
				// A want that is published again does not delay the slot.
				again := now.Add(pending.Sub(now) * time.Duration(i) / 1000)
				if next := r.Next(again, aURL, interval); !next.Equal(pending) {
					t.Fatalf("%s, jitter %v: the slot moved from %s to %s", interval, jitter, pending, next)
				}
			}
		}
	}
}

func TestALateFetchReturnsToTheSlotsOfItsURL(t *testing.T) {
	const interval = time.Minute
	r := engine.Refresh{Min: time.Second, Jitter: 0.05}
	slot := r.Next(time.Unix(1_800_000_000, 0), aURL, interval)
	at := r.After(slot.Add(50*time.Second), aURL, interval)
	for range 2 {
		at = r.After(at.Add(time.Second), aURL, interval)
	}
	if want := r.Next(at.Add(-time.Second), aURL, interval); !at.Equal(want) {
		t.Errorf("refresh at %s instead of %s", at, want)
	}
}

func TestObjectsWithTheSameURLAreFetchedTogether(t *testing.T) {
	r := engine.Refresh{Min: time.Second, Jitter: 0.05}
	now := time.Unix(1_800_000_000, 0)
	times := map[time.Time]int{}
	for i := range 100 { // fetched at different moments of one minute
		times[r.After(now.Add(time.Duration(i)*600*time.Millisecond), aURL, 10*time.Minute)]++
	}
	if len(times) > 2 {
		t.Errorf("objects are fetched at %d different times", len(times))
	}
}

func TestDifferentURLsSpreadOverTheInterval(t *testing.T) {
	const interval, parts, each = 10 * time.Minute, 10, 200
	r := engine.Refresh{Min: time.Second}
	now := time.Unix(1_800_000_000, 0)
	var count [parts]int
	for i := range parts * each {
		aURL := fmt.Sprintf("https://data.example.com/%d", i)
		at := r.After(r.After(now, aURL, interval), aURL, interval)
		count[at.UnixNano()%int64(interval)*parts/int64(interval)]++
	}
	for part, n := range count {
		if n < each/2 || n > 2*each {
			t.Errorf("part %d of the interval has %d of %d URLs", part, n, parts*each)
		}
	}
}

func TestAnIntervalBelowTheMinimumIsRaised(t *testing.T) {
	r, now := engine.Refresh{Min: time.Minute}, time.Unix(1_800_000_000, 0)
	if got, want := r.After(now, aURL, time.Second), r.After(now, aURL, time.Minute); !got.Equal(want) {
		t.Errorf("After() = %s, want %s", got, want)
	}
}
