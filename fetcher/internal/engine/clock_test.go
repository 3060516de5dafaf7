package engine_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/brokerclock"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

var _ = Describe("The clock of the machine", func() {
	var (
		w     *world
		began time.Time
	)
	BeforeEach(func() {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
		began = time.Now()
	})

	// wrong returns a fetcher with a wrong clock. The broker has the right one.
	wrong := func(by time.Duration) *fetcher {
		return w.fetcher(func(o *fetcherOptions) {
			o.wallClock = func() time.Time { return time.Now().Add(by) }
			o.clock = brokerclock.New(nil)
		})
	}

	DescribeTable("may be wrong without an effect on retries and refreshes",
		func(by time.Duration) {
			f := wrong(by)
			w.publish(w.want(serve(fails(http.StatusBadGateway)).URL))
			f.step()
			retry := w.timer()
			Expect(retry.GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
			Expect(retry.at.Sub(began)).To(BeNumerically(">=", 2*time.Second))
			Expect(retry.at).To(BeTemporally("<=", time.Now().Add(2*time.Second)))

			w.publish(w.want(serve(says("hello there")).URL, every(10*time.Minute)))
			f.step()
			refresh := w.timer()
			Expect(refresh.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
			Expect(refresh.at.Sub(began)).To(BeNumerically(">=", 5*time.Minute), "half an interval")
			Expect(refresh.at).To(BeTemporally("<=", time.Now().Add(15*time.Minute)))
		},
		Entry("right", time.Duration(0)),
		Entry("15 s behind", -15*time.Second),
		Entry("65 s behind", -65*time.Second),
		Entry("65 s ahead", 65*time.Second),
	)
})
