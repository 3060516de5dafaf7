package engine_test

import (
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// The servers of a NATS cluster may have different clocks, and the leader of a stream stamps its messages.
var _ = Describe("A broker whose clock is set back by a day", func() {
	const day = 24 * time.Hour

	It("does not let objects share a GET of the former time", func() {
		f, o := w.fetcher(), serve(says("hello there"))
		f.fetch(w.want(o.URL, named("cm", 0)))
		w.clock.Advance(-day)
		f.fetch(w.want(o.URL, named("cm", 1)))
		Expect(o.gets.Load()).To(BeEquivalentTo(2))
	})

	It("does not delay a namespace that has used up its budget", func() {
		f := w.fetcher(func(o *fetcherOptions) {
			o.local, o.config.ResultBytes = time.Now, budget.Config{Burst: 100, Refill: time.Minute}
		})
		o := serve(says(strings.Repeat("x", 1000)))
		f.fetch(w.want(o.URL+"/a", named("cm", 0)))
		f.fetch(w.want(o.URL+"/b", named("cm", 1)))
		w.clock.Advance(-day)
		f.fetch(w.want(o.URL+"/c", named("cm", 2)))
		Expect(f.parked("namespace_bytes")()).To(BeEquivalentTo(2))
		parked := w.timerOf(pipeline.Key{Namespace: key.Namespace, Name: "cm-0002", Key: key.Key})
		Expect(parked.at.Sub(w.clock.Now())).To(BeNumerically("<", time.Hour))
	})

	It("does not make GETs conditional for longer than a day", func() {
		f := w.fetcher()
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
			}
		})
		f.fetchDue(w.want(o.URL+"/", every(time.Hour)), &v1.Due{Cached: &v1.Cached{
			Sha256: pipeline.Digest("old"), Etag: `"v1"`, ValidatedBy: pipeline.Digest(o.URL + "/?")[:32],
			ConditionalUntil: timestamppb.New(w.clock.Now().Add(day + day/2)),
		}})
		Expect(w.results()).To(HaveLen(1), "the server has an empty body now")
	})
})
