package pipeline_test

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A result", func() {
	DescribeTable("is published to the subject of its outcome",
		func(ctx SpecContext, r *v1.Result, subject string) {
			_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
			r.Want, r.Sequence = natstest.Want(key, "https://a.example"), 1
			Expect(pipeline.NewClient(js).PublishResult(ctx, r)).To(Succeed())
			m := must(stream(ctx, js, pipeline.Results).GetMsg(ctx, 1))
			Expect(m.Subject).To(Equal(subject))
			got := must(pipeline.DecodeResult(key, m.Data))
			Expect(got.GetSequence()).To(BeEquivalentTo(1))
		},
		Entry("content", &v1.Result{Outcome: &v1.Result_Content{Content: &v1.Content{}}}, key.Content()),
		Entry("unmodified", &v1.Result{Outcome: &v1.Result_Unmodified{Unmodified: &v1.Unmodified{}}}, key.Failure()),
		Entry("failure", &v1.Result{Outcome: &v1.Result_Failure{Failure: &v1.Failure{}}}, key.Failure()),
		Entry("reconcile", &v1.Result{Outcome: &v1.Result_Reconcile{Reconcile: &v1.Reconcile{}}}, key.Reconcile()),
	)

	It("is stored even after a message of somebody else with the same id", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		must(js.Publish(ctx, natstest.Numbered(1).Content(), nil, jetstream.WithMsgID("1.7.content")))
		Expect(pipeline.NewClient(js).PublishResult(ctx, content(key, 7, 10))).To(Succeed())
		Expect(stream(ctx, js, pipeline.Results).CachedInfo().State.Msgs).To(BeEquivalentTo(2))
	})

	It("is refused if the stream is full, and nothing is lost", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{MaxResultBytes: 64 << 10})
		c := pipeline.NewClient(js)
		accepted := 0
		for ; accepted < 20; accepted++ {
			if err := c.PublishResult(ctx, content(natstest.Numbered(accepted), uint64(accepted+1), 10<<10)); err != nil {
				Expect(err).To(MatchError(pipeline.ErrFull))
				Expect(err).To(MatchError(ContainSubstring(natstest.Numbered(accepted).String())))
				break
			}
		}
		Expect(accepted).To(BeNumerically("~", 6, 1))
		Expect(stream(ctx, js, pipeline.Results).CachedInfo().State.Msgs).To(BeEquivalentTo(accepted))

		refused := content(natstest.Numbered(accepted), uint64(accepted+1), 10<<10)
		Expect(c.PublishResult(ctx, refused)).To(MatchError(pipeline.ErrFull))
		writer := must(js.Consumer(ctx, pipeline.Results, pipeline.WriterConsumer))
		Expect(must(writer.Next()).DoubleAck(ctx)).To(Succeed())
		Eventually(func() error { return c.PublishResult(ctx, refused) }).Should(Succeed())
		m, err := stream(ctx, js, pipeline.Results).GetLastMsgForSubject(ctx, natstest.Numbered(accepted).Content())
		Expect(err).NotTo(HaveOccurred(), "its first try must not count as a duplicate")
		Expect(m.Sequence).To(BeEquivalentTo(accepted + 1))
	})

	It("that exceeds the server's max_payload fails with ErrTooLarge", func(ctx SpecContext) {
		s := natstest.Broker(GinkgoTB(), natstest.Options{MaxPayload: 64 << 10})
		js := natstest.Connect(GinkgoTB(), s)
		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		c := pipeline.NewClient(js)
		Expect(c.PublishResult(ctx, content(key, 1, 64<<10))).To(MatchError(pipeline.ErrTooLarge))
		Expect(c.PublishResult(ctx, content(key, 1, 60<<10))).To(Succeed())
	})
})

var _ = Describe("A dead letter", func() {
	It("is stored once per id, under its reason and host", func(ctx SpecContext) {
		js, c := ensured()
		d := &v1.DeadLetter{
			Want:    natstest.Want(key, "https://data.example.com"),
			Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "data.example.com"},
		}
		Expect(c.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(c.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(c.PublishDeadLetter(ctx, key, d, "1.8")).To(Succeed())
		failures := stream(ctx, js, pipeline.Failures)
		Expect(failures.CachedInfo().State.Msgs).To(BeEquivalentTo(2))
		m := must(failures.GetMsg(ctx, 1))
		reason, host, k, err := pipeline.ParseDeadLetter(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{reason, host, k}).To(Equal([]any{"Timeout", "data.example.com", key}))
	})

	It("is stored for any form of host in its URL", func(ctx SpecContext) {
		s, _, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		js := natstest.Connect(GinkgoTB(), s)
		c := pipeline.NewClient(js)
		d := &v1.DeadLetter{Failure: &v1.Failure{Host: strings.Repeat(".> *\r\n", 2000)}}
		Expect(c.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(js.Conn().Stats().Reconnects).To(BeZero(),
			"the server closes the connection of a client that exceeds its control line")
	})
})
