package engine_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Objects with the same URL", func() {
	It("do not share an earlier GET with a fetch on demand, for a lost body, or for another digest", func() {
		o := serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.clock, o.config.Sharing.Window = clockOf(time.Now), time.Minute })
		for i, c := range []struct {
			change func(*v1.Want)
			gets   int
		}{
			{func(*v1.Want) {}, 1},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }, 2},
			{func(*v1.Want) {}, 2},
			{func(w *v1.Want) { w.Sha256 = pipeline.Digest("hello there") }, 2},
			{func(w *v1.Want) { w.Sha256 = pipeline.Digest("hello again") }, 3},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_AUDIT }, 4}, // the body was lost before it was written
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_DRIFT }, 5},
		} {
			f.fetch(w.want(o.URL, named("cm", i), c.change))
			Expect(o.gets.Load()).To(BeEquivalentTo(c.gets), "number %d", i)
		}
		want := w.want(o.URL, named("cm", 0))
		w.fire(&v1.Due{Want: want, WantSequence: 1, Cause: v1.Cause_CAUSE_REPLAY})
		f.step()
		Expect(o.gets.Load()).To(BeEquivalentTo(6))
	})

	It("do not share a GET with another validator", func() {
		o := serve(tagged(`"v2"`, "hello there"))
		f := w.fetcher()
		for i, tag := range []string{"", `"v1"`, `"v2"`} {
			f.fetchDue(w.want(o.URL+"/", named("cm", i), every(time.Hour)), &v1.Due{Cached: &v1.Cached{
				Sha256: pipeline.Digest("old"), Etag: tag, ValidatedBy: pipeline.Digest(o.URL + "/?")[:32],
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
		parked := f.parked("shared_get")
		Eventually(parked).Should(BeEquivalentTo(keys - 1))
		Expect(f.value("in_flight_messages")()).To(BeEquivalentTo(1))
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
		Eventually(f.value(`messages_total{outcome="queued"}`)).Should(BeEquivalentTo(1))
		Expect(f.slots.Queued()).To(Equal(keys - 1))
		Expect(w.timerOf(last).at.Sub(w.clock.Now())).To(Equal(57 * time.Second))

		close(release)
		Eventually(w.contents).Should(Equal(keys))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
	})
})
