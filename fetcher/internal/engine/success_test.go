package engine_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

// digest of "hello there".
const digest = "12998c017066eb0d2a70b94e6ed3192985855ce390f321bbdb832022888bd251"

func every(d time.Duration) func(*v1.Want) {
	return func(w *v1.Want) { w.Refresh = durationpb.New(d) }
}

var _ = Describe("A good answer", func() {
	var w *world
	BeforeEach(func() {
		w = newWorld(natstest.Options{}, pipeline.Topology{})
	})

	It("to a want is handed to the writer with all that its fast path needs", func() {
		o := serve(says("hello there"))
		want := w.want(o.URL)
		sequence := w.publish(want)

		w.fetcher().step()

		r := w.result()
		Expect(r.GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Expect(r.GetContent().GetSha256()).To(Equal(digest))
		Expect(r.GetSequence()).To(Equal(sequence))
		Expect(r.GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
		Expect(r.GetWant().GetEpoch()).To(Equal(w.epoch))
		Expect(r.GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(r.GetWant().GetResourceVersion()).To(Equal("7"))
		Expect(r.GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.timer()).To(BeNil(), "nothing asked for another fetch")
		Expect(w.pending()).To(BeZero())
	})
})
