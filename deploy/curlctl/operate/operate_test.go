package operate_test

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The client of operators", func() {
	var (
		js     jetstream.JetStream
		client *operate.Client
	)
	BeforeEach(func() {
		_, js, _ = natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		client = operate.NewClient(js)
	})

	wanted := func(k pipeline.Key) *v1.Due {
		GinkgoHelper()
		due := natstest.Due(GinkgoTB(), js, k)
		due.Cause, due.ReplayOf = v1.Cause_CAUSE_REPLAY, 7
		return due
	}

	It("publishes a due once, which replaces the timer", func(ctx SpecContext) {
		due := wanted(key)
		at := time.Now().Add(time.Hour)
		Expect(client.SetTimer(ctx, due, at)).Error().NotTo(HaveOccurred())
		timer := suitetest.Must(client.PendingTimer(ctx, key))
		Expect(timer.At).To(BeTemporally("==", at.UTC()))
		Expect(timer.Due.GetReplayOf()).To(BeEquivalentTo(7))

		Expect(client.PublishDue(ctx, due, "once")).To(BeFalse())
		Expect(client.PendingTimer(ctx, key)).Error().To(MatchError(pipeline.ErrNoMessage))
		Expect(client.PublishDue(ctx, due, "once")).To(BeTrue())
	})

	It("refuses a due of a replaced want", func(ctx SpecContext) {
		due := wanted(key)
		Expect(client.PublishTombstone(ctx, key, due.GetWantSequence())).Error().NotTo(HaveOccurred())
		Expect(client.PublishDue(ctx, due, "late")).Error().To(MatchError(pipeline.ErrSuperseded))
	})

	It("lists wants and timers by object", func(ctx SpecContext) {
		Expect(client.Waiting(ctx, 1)).Error().To(MatchError(pipeline.ErrNoMessage))
		for i := range 600 { // more than two batches
			due := wanted(natstest.Numbered(i))
			Expect(client.SetTimer(ctx, due, time.Now().Add(time.Hour))).Error().NotTo(HaveOccurred())
		}
		gone := wanted(key)
		Expect(client.PublishTombstone(ctx, key, gone.GetWantSequence())).Error().NotTo(HaveOccurred())

		count := func(namespace, name string) (wants, timers int) {
			for w, err := range client.Wants(ctx, namespace, name) {
				Expect(err).NotTo(HaveOccurred())
				Expect(w.Want.GetUrl()).NotTo(BeEmpty())
				wants++
			}
			for _, err := range client.Timers(ctx, namespace, name) {
				Expect(err).NotTo(HaveOccurred())
				timers++
			}
			return wants, timers
		}
		wants, timers := count("", "")
		Expect([]int{wants, timers}).To(Equal([]int{600, 600}))
		wants, timers = count("default", "cm-00007")
		Expect([]int{wants, timers}).To(Equal([]int{1, 1}))
		wants, timers = count("other", "")
		Expect([]int{wants, timers}).To(Equal([]int{0, 0}))
		at := suitetest.Must(client.Waiting(ctx, 1))
		Expect(at).To(BeTemporally("~", time.Now(), 30*time.Second))
	})

	It("pauses and resumes the fetchers", func(ctx SpecContext) {
		paused := func() bool {
			consumer := suitetest.Must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
			return consumer.CachedInfo().Paused
		}
		Expect(client.PauseFetching(ctx, time.Now().Add(time.Hour))).To(Succeed())
		Expect(paused()).To(BeTrue())
		Expect(pipeline.Ensure(ctx, js, pipeline.Topology{})).Error().NotTo(HaveOccurred())
		Expect(paused()).To(BeTrue(), "starting a service must not end the pause")
		Expect(client.ResumeFetching(ctx)).To(Succeed())
		Expect(paused()).To(BeFalse())
	})
})
