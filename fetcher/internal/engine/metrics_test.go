package engine_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

var _ = Describe("Metrics", func() {
	It("observe the delay of a regular fetch, and nothing for a key without a successful one", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		f := w.fetcher()
		w.publish(w.want(serve(says("hello there")).URL, every(10*time.Minute)))
		f.step()
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
