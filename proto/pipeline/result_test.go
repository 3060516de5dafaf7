package pipeline_test

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A result", func() {
	DescribeTable("is published to the subject of its outcome",
		func(ctx SpecContext, r *v1.Result, subject string) {
			r.Want, r.Sequence = natstest.Want(key, "https://a.example"), 1
			Expect(client.PublishResult(ctx, r)).To(Succeed())
			m := suitetest.Must(stream(ctx, pipeline.Results).GetMsg(ctx, 1))
			Expect(m.Subject).To(Equal(subject))
			got := suitetest.Must(pipeline.DecodeResult(key, m.Data))
			Expect(got.GetSequence()).To(BeEquivalentTo(1))
		},
		Entry("content", &v1.Result{Outcome: &v1.Result_Content{Content: &v1.Content{}}}, key.ContentSubject()),
		Entry("unmodified", &v1.Result{Outcome: &v1.Result_Unmodified{Unmodified: &v1.Unmodified{}}}, key.FailureSubject()),
		Entry("failure", &v1.Result{Outcome: &v1.Result_Failure{Failure: &v1.Failure{}}}, key.FailureSubject()),
		Entry("sync", &v1.Result{Outcome: &v1.Result_Sync{Sync: &v1.Sync{}}}, key.SyncSubject()),
	)

	It("is stored even after a message of somebody else with the same id", func(ctx SpecContext) {
		suitetest.Must(js.Publish(ctx, natstest.Numbered(1).ContentSubject(), nil, jetstream.WithMsgID("1.7.content")))
		Expect(client.PublishResult(ctx, content(key, 7, 10))).To(Succeed())
		Expect(stream(ctx, pipeline.Results).CachedInfo().State.Msgs).To(BeEquivalentTo(2))
	})

	It("is refused if the stream is full, and nothing is lost", func(ctx SpecContext) {
		ensure(pipeline.Topology{MaxResultBytes: 64 << 10})
		accepted := 0
		for ; accepted < 20; accepted++ {
			if err := client.PublishResult(ctx, content(natstest.Numbered(accepted), uint64(accepted+1), 10<<10)); err != nil {
				Expect(err).To(MatchError(pipeline.ErrFull))
				Expect(err).To(MatchError(ContainSubstring(natstest.Numbered(accepted).String())))
				break
			}
		}
		Expect(accepted).To(BeNumerically("~", 6, 1))
		Expect(stream(ctx, pipeline.Results).CachedInfo().State.Msgs).To(BeEquivalentTo(accepted))

		refused := content(natstest.Numbered(accepted), uint64(accepted+1), 10<<10)
		Expect(client.PublishResult(ctx, refused)).To(MatchError(pipeline.ErrFull))
		writer := suitetest.Must(js.Consumer(ctx, pipeline.Results, pipeline.WriterConsumer))
		Expect(suitetest.Must(writer.Next()).DoubleAck(ctx)).To(Succeed())
		Eventually(func() error { return client.PublishResult(ctx, refused) }).Should(Succeed())
		m, err := stream(ctx, pipeline.Results).GetLastMsgForSubject(ctx, natstest.Numbered(accepted).ContentSubject())
		Expect(err).NotTo(HaveOccurred(), "its first try must not count as a duplicate")
		Expect(m.Sequence).To(BeEquivalentTo(accepted + 1))
	})

	It("that exceeds the server's max_payload fails with ErrTooLarge", func(ctx SpecContext) {
		blank(natstest.Options{MaxPayload: 64 << 10})
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Expect(client.PublishResult(ctx, content(key, 1, 64<<10))).To(MatchError(pipeline.ErrTooLarge))
		Expect(client.PublishResult(ctx, content(key, 1, 60<<10))).To(Succeed())
	})
})

var _ = Describe("A dead letter", func() {
	It("is stored once per id, under its reason and host", func(ctx SpecContext) {
		d := &v1.DeadLetter{
			Want:    natstest.Want(key, "https://data.example.com"),
			Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "data.example.com"},
		}
		Expect(client.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(client.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(client.PublishDeadLetter(ctx, key, d, "1.8")).To(Succeed())
		failures := stream(ctx, pipeline.DeadLetters)
		Expect(failures.CachedInfo().State.Msgs).To(BeEquivalentTo(2))
		m := suitetest.Must(failures.GetMsg(ctx, 1))
		reason, host, k, err := pipeline.ParseDeadLetter(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{reason, host, k}).To(Equal([]any{"Timeout", "data.example.com", key}))
	})

	It("is stored for any form of host in its URL", func(ctx SpecContext) {
		d := &v1.DeadLetter{Failure: &v1.Failure{Host: strings.Repeat(".> *\r\n", 2000)}}
		Expect(client.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(js.Conn().Stats().Reconnects).To(BeZero(),
			"the server closes the connection of a client that exceeds its control line")
	})
})
