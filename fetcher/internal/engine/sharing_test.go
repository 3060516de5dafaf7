package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// named gives a want a numbered name.
func named(prefix string, n int) func(*v1.Want) {
	return func(w *v1.Want) { w.Name = fmt.Sprintf("%s-%04d", prefix, n) }
}

var _ = Describe("Objects with the same URL", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("share an outcome, even a failure, for a second", func() {
		o := serve(fails(http.StatusNotFound))
		f := w.fetcher()
		for i, gets := range []int{1, 1, 2} {
			f.fetch(w.want(o.URL, named("cm", i)))
			Expect(o.gets.Load()).To(BeEquivalentTo(gets))
			w.clock.Advance(600 * time.Millisecond)
		}
	})

	It("do not share an earlier GET with a fetch on demand or another digest", func() {
		o := serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.clock, o.config.Sharing.Window = clockOf(time.Now), time.Minute })
		for i, c := range []struct {
			change func(*v1.Want)
			gets   int
		}{
			{func(*v1.Want) {}, 1},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }, 2},
			{func(*v1.Want) {}, 2},
			{func(w *v1.Want) { w.Sha256 = digest("hello there") }, 2},
			{func(w *v1.Want) { w.Sha256 = digest("hello again") }, 3},
		} {
			f.fetch(w.want(o.URL, named("cm", i), c.change))
			Expect(o.gets.Load()).To(BeEquivalentTo(c.gets), "number %d", i)
		}
		want := w.want(o.URL, named("cm", 0))
		w.fire(&v1.Due{Want: want, WantSequence: 1, Cause: v1.Cause_CAUSE_REPLAY})
		f.step()
		Expect(o.gets.Load()).To(BeEquivalentTo(4))
	})

	It("do not share a GET with another validator", func() {
		o := serve(tagged(`"v2"`, "hello there"))
		sum := sha256.Sum256([]byte(o.URL + "/?"))
		f := w.fetcher()
		for i, tag := range []string{"", `"v1"`, `"v2"`} {
			f.fetchDue(w.want(o.URL+"/", named("cm", i), every(time.Hour)), &v1.Due{Cached: &v1.Cached{
				Sha256: digest("old"), Etag: tag, ValidatedBy: hex.EncodeToString(sum[:16]),
				ConditionalUntil: timestamppb.New(w.clock.Now()),
			}})
		}
		Expect(o.gets.Load()).To(BeEquivalentTo(3))
		Expect(w.results()).To(HaveLen(2), "the third response is a 304")
	})

	It("wait for a slow GET at one message per minute, and get its outcome at once", func() {
		const keys = 40
		hanging, _, release := held("hello there")
		f := w.fetcher(func(o *fetcherOptions) { o.limits.Slots = 8 })
		for i := range keys {
			w.publish(w.want(hanging.URL, named("hanging", i)))
		}
		f.run()
		parked := func() int { return f.parked("shared_call_slow") }
		Eventually(parked).Should(Equal(keys - 1))
		Expect(f.inFlight()).To(BeEquivalentTo(1))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
		var last pipeline.Key
		for i := range keys {
			k := pipeline.Key{Namespace: key.Namespace, Name: fmt.Sprintf("hanging-%04d", i), Key: key.Key}
			if t := w.timerOf(k); t != nil {
				Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
				Expect(t.at.Sub(w.clock.Now())).To(Equal(40*time.Second), "first leases have more jitter")
				last = k
			}
		}
		w.fire(w.timerOf(last).Due)
		Eventually(parked).Should(Equal(keys))
		Expect(w.timerOf(last).at.Sub(w.clock.Now())).To(Equal(57 * time.Second))

		close(release)
		Eventually(w.contents).Should(Equal(keys))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
	})
})

// A fetched body may be lost before it is written. Then the watcher publishes its want again.
var _ = Describe("A want for a lost body", func() {
	DescribeTable("gets the whole body again if it comes",
		func(cause v1.Cause) {
			w := newWorld(natstest.Options{}, pipeline.Topology{})
			f := w.fetcher(func(o *fetcherOptions) { o.clock = pipeline.NewClock() })
			var conditional int
			o := serve(func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("If-None-Match") != "" {
					conditional++
				}
				tagged(`"v1"`, "hello there")(rw, r)
			})
			f.fetch(w.want(o.URL, every(10*time.Minute)))
			Expect(w.timer().GetCached().GetEtag()).To(Equal(`"v1"`))
			Expect(w.results()).To(HaveLen(1))

			// The previous response is still shared.
			f.fetch(w.want(o.URL, every(10*time.Minute), func(want *v1.Want) { want.Cause = cause }))
			Expect(w.results()).To(HaveLen(2))
			Expect(w.results()[1].GetContent().GetBody()).To(BeEquivalentTo("hello there"))
			Expect(w.results()[1].GetCause()).To(Equal(cause))
			Expect(conditional).To(BeZero())
			Expect(o.gets.Load()).To(BeEquivalentTo(2), "the want needs a newer GET")
		},
		Entry("from the audit", v1.Cause_CAUSE_AUDIT),
		Entry("after a drift", v1.Cause_CAUSE_DRIFT),
		Entry("from a person", v1.Cause_CAUSE_NOW),
	)
})
