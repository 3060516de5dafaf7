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

// What was fetched may never have been stored: results are purged, or the
// writer was refused. The watcher then publishes the want again.
var _ = Describe("A want for a body that was fetched before", func() {
	DescribeTable("publishes the whole body again when the watcher asks for one that was lost",
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

			// At once, while the response is still shared.
			w.publish(w.want(o.URL, every(10*time.Minute), func(want *v1.Want) { want.Cause = cause }))
			f.step()
			Expect(w.results()).To(HaveLen(2))
			Expect(w.results()[1].GetContent().GetBody()).To(BeEquivalentTo("hello there"))
			Expect(w.results()[1].GetCause()).To(Equal(cause))
			Expect(conditional).To(BeZero())
			Expect(o.gets.Load()).To(BeEquivalentTo(2), "what was fetched before the want is older than what it asks for")
		},
		Entry("of the audit", v1.Cause_CAUSE_AUDIT),
		Entry("after a drift", v1.Cause_CAUSE_DRIFT),
		Entry("of a person", v1.Cause_CAUSE_NOW),
	)
})
