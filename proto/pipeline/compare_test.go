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

		stream, err := js.Stream(ctx, pipeline.Failures)
		Expect(err).NotTo(HaveOccurred())
		old := stream.CachedInfo().Config
		old.MaxMsgsPerSubject = 5
		_, err = js.UpdateStream(ctx, old)
		Expect(err).NotTo(HaveOccurred())
		Expect(js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Expect(js.DeleteStream(ctx, pipeline.Results)).To(Succeed())
		for range 2 {
			Expect(pipeline.Compare(ctx, js, pipeline.Topology{})).To(ConsistOf(
				ContainSubstring("consumer fetcher of stream CURL_REQUESTS does not exist"),
				ContainSubstring("stream CURL_RESULTS does not exist"),
				ContainSubstring("stream CURL_FAILURES does not have the configuration"),
			))
		}

		_, err = pipeline.Ensure(ctx, js, pipeline.Topology{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pipeline.Compare(ctx, js, pipeline.Topology{})).To(BeEmpty())
	})
})
