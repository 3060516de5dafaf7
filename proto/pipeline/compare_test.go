package pipeline_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
)

var _ = Describe("Compare", func() {
	It("reports the changes that Ensure would make, without making them", func(ctx SpecContext) {
		_, js, _ := pipelinetest.Ensured(GinkgoTB(), pipeline.Topology{})
		Expect(pipeline.Compare(ctx, js, pipeline.Topology{})).To(BeEmpty())

		stream := must(js.Stream(ctx, pipeline.Failures))
		old := stream.CachedInfo().Config
		old.MaxMsgsPerSubject = 5
		must(js.UpdateStream(ctx, old))
		Expect(js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Expect(js.DeleteStream(ctx, pipeline.Results)).To(Succeed())
		for range 2 {
			Expect(pipeline.Compare(ctx, js, pipeline.Topology{})).To(ConsistOf(
				ContainSubstring("consumer fetcher of stream CURL_REQUESTS does not exist"),
				ContainSubstring("stream CURL_RESULTS does not exist"),
				ContainSubstring("stream CURL_FAILURES does not have the configuration"),
			))
		}

		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Expect(pipeline.Compare(ctx, js, pipeline.Topology{})).To(BeEmpty())
	})
})
