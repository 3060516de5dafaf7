package watcher_test

import (
	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A pinned key", func() {
	const body = "earlier content"
	DescribeTable("whose body", func(ctx SpecContext, kept string, reports int) {
		w := newWorld(ctx)
		must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		digest := pipeline.Digest(body)
		if kept != "" {
			must(w.js.PublishMsg(ctx, &nats.Msg{Subject: pipeline.BodySubject(w.namespace, digest), Data: []byte(kept)}))
		}
		w.watch().awaitReady()
		w.create(ctx, "cm", "k=example.com")
		Eventually(w.want(ctx, w.key("cm", "k"))).ShouldNot(BeNil())
		before := len(w.reports(ctx))
		w.annotate(ctx, "cm", object{"x-kv8s.io/curl-sha256": "k=" + digest})
		Eventually(func() string { return w.want(ctx, w.key("cm", "k"))().GetSha256() }).Should(Equal(digest))
		Expect(w.want(ctx, w.key("cm", "k"))().GetCached() != nil).To(Equal(reports > 0), "nothing to fetch")
		Eventually(func() int { return len(w.reports(ctx)) - before }).Should(Equal(reports), "messages for the writer")
	},
		Entry("is in the history is asked of the writer, not of a fetcher", body, 1),
		Entry("is forged there is fetched", "forged", 0),
		Entry("is not there is fetched", "", 0),
	)
})
