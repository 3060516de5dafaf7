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

// A fetched body may be lost before it is written. Then the watcher publishes its want again.
var _ = Describe("A want for a lost body", func() {
	DescribeTable("gets the whole body again if it comes",
		func(cause v1.Cause) {
			w := newWorld(natstest.Options{}, pipeline.Topology{})
			f := w.fetcher(func(o *fetcherOptions) { o.clock = brokerclock.New(nil) })
			var conditional int
			o := serve(func(rw http.ResponseWriter, r *http.Request) {
				if r.Header.Get("If-None-Match") != "" {
					conditional++
				}
				tagged(`"v1"`, "hello there")(rw, r)
			})
			w.publish(w.want(o.URL, every(10*time.Minute)))
			f.step()
			Expect(w.timer().GetCached().GetEtag()).To(Equal(`"v1"`))
			Expect(w.results()).To(HaveLen(1))

			// The previous response is still shared.
			w.publish(w.want(o.URL, every(10*time.Minute), func(want *v1.Want) { want.Cause = cause }))
			f.step()
			Expect(w.results()).To(HaveLen(2))
			Expect(w.results()[1].GetContent().GetBody()).To(BeEquivalentTo("hello there"))
			Expect(w.results()[1].GetCause()).To(Equal(cause))
			Expect(conditional).To(BeZero())
			Expect(o.gets.Load()).To(BeEquivalentTo(2), "what was fetched before the want is older than what it asks for")
		},
		Entry("from the audit", v1.Cause_CAUSE_AUDIT),
		Entry("after a drift", v1.Cause_CAUSE_DRIFT),
		Entry("from a person", v1.Cause_CAUSE_NOW),
	)
})
