package curlctl_test

import (
	"context"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/connect"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Dead letters", func() {
	const many = 1500 // more than one window
	var (
		js     jetstream.JetStream
		client *operate.Client
	)
	BeforeEach(func(ctx SpecContext) {
		_, js, _ = natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		client = operate.NewClient(js)
		for i := range many {
			letter := &v1.DeadLetter{Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "a.example.com"}}
			if i%300 == 7 {
				letter.Failure = &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, Host: "b.example.com"}
			}
			Expect(client.PublishDeadLetter(ctx, natstest.Numbered(i), letter, strconv.Itoa(i))).To(Succeed())
		}
	})

	ids := func(ctx context.Context, f operate.DeadLetterFilter) (all []uint64) {
		GinkgoHelper()
		for failure, err := range client.DeadLetters(ctx, f) {
			Expect(err).NotTo(HaveOccurred())
			all = append(all, failure.ID)
		}
		return all
	}

	It("are read newest first, each once", func(ctx SpecContext) {
		Expect(client.DeleteDeadLetter(ctx, 1000)).To(Succeed())
		Expect(client.DeleteDeadLetter(ctx, 1000)).To(Succeed())
		all := ids(ctx, operate.DeadLetterFilter{})
		Expect(all).To(HaveLen(many - 1))
		for i := 1; i < len(all); i++ {
			Expect(all[i]).To(BeNumerically("<", all[i-1]))
		}
		Expect(client.DeadLetter(ctx, 1000)).Error().To(MatchError(pipeline.ErrNoMessage))
		one := suitetest.Must(client.DeadLetter(ctx, 8))
		Expect(one.Host).To(Equal("b.example.com"))
	})

	It("continue below the last ID", func(ctx SpecContext) {
		Expect(ids(ctx, operate.DeadLetterFilter{Host: "b.example.com", Below: 608})).To(Equal([]uint64{308, 8}))
		Expect(ids(ctx, operate.DeadLetterFilter{Below: 1})).To(BeEmpty())
		Expect(ids(ctx, operate.DeadLetterFilter{Below: 1 << 40})).To(HaveLen(many), "the ID is beyond the stream")
		Expect(client.PurgeDeadLetters(ctx, operate.DeadLetterFilter{Host: "b.example.com", Below: 608})).To(Equal(2))
		Expect(ids(ctx, operate.DeadLetterFilter{})).To(HaveLen(many - 2))
	})
})

var _ = DescribeTable("An error has one exit code and one HTTP status, such as",
	func(cause, err error, kind fault.Kind, text string) {
		got, explained := fault.Of(cause, err)
		Expect(got).To(Equal(kind))
		Expect(explained).To(MatchError(text))
	},
	Entry("a request that NATS does not answer", nil, nats.ErrTimeout, fault.NoConnection,
		"NATS does not respond: nats: timeout"),
	Entry("a missing stream", nil, jetstream.ErrStreamNotFound, fault.NotSetUp,
		"nats: API error: code=404 err_code=10059 description=stream not found (`curlctl setup` creates it)"),
	Entry("a missing failure", nil, pipeline.ErrNoMessage, fault.NotFound, pipeline.ErrNoMessage.Error()),
	Entry("a denied request, whatever it returned",
		&connect.PermissionError{Operation: "publish to", Subject: "a"}, nats.ErrTimeout, fault.NotPermitted,
		"this NATS user may not publish to a: use another identity (--context or --nats-creds), or ask for that permission"),
	Entry("any other", nil, io.EOF, fault.Failed, "EOF"),
)
