package pipeline_test

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Replicated streams check the conditions of a publish in another order, and against publishes in
// flight. Any replica may respond to a read.
var _ = Describe("A cluster of three servers", func() {
	var (
		servers []*natstest.Server
		clients []*pipeline.Client
		js      jetstream.JetStream
	)
	BeforeEach(func() {
		servers, _ = natstest.Cluster(GinkgoTB())
		clients = nil
		for _, s := range servers {
			clients = append(clients, pipeline.NewClient(natstest.Connect(GinkgoTB(), s)))
		}
		js = clients[0].JetStream()
	})

	It("follows the same rules as a single server", func(ctx SpecContext) {
		By("when it creates replicated streams once and keeps their replicas")
		var epoch int64
		Eventually(func() (err error) { // the servers may have to elect leaders again
			epoch, err = pipeline.Ensure(ctx, js, pipeline.Topology{Replicas: 3})
			return err
		}).WithTimeout(time.Minute).Should(Succeed())
		again := must(pipeline.Ensure(ctx, clients[1].JetStream(), pipeline.Topology{}))
		Expect(again).To(Equal(epoch), "all servers report the same epoch")
		for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures} {
			Expect(config(ctx, js, name).Replicas).To(Equal(3))
		}

		By("when one of many different wants wins")
		winner := race(clients, func(c *pipeline.Client, n int) (uint64, error) {
			return c.PublishWant(ctx, natstest.Want(key, fmt.Sprintf("https://%d.example", n)), 0)
		})
		Expect(winner).To(HaveLen(1))

		By("when a want counts as published although the response was lost")
		for n := range 20 {
			k, c := natstest.Numbered(n), clients[n%3]
			want, other := natstest.Want(k, "https://a.example"), natstest.Want(k, "https://b.example")
			seq := must(clients[0].PublishWant(ctx, want, 0))
			Eventually(ctx, func() (uint64, error) { return c.PublishWant(ctx, want, 0) }).Should(Equal(seq))
			Expect(c.PublishWant(ctx, other, 0)).Error().To(MatchError(pipeline.ErrSuperseded))
			var tomb uint64
			Eventually(ctx, func() (err error) { // the rejected want may still be in flight
				tomb, err = clients[0].PublishTombstone(ctx, k, seq)
				return err
			}).Should(Succeed())
			// A replica that is behind for longer than the client's pauses is asked again.
			Eventually(ctx, func() (uint64, error) { return c.PublishTombstone(ctx, k, seq) }).Should(Equal(tomb))
		}

		By("when timers of an unchanged want fire")
		w := natstest.Want(natstest.Numbered(100), "https://a.example")
		seq := must(clients[1].PublishWant(ctx, w, 0))
		at := time.Now().Add(500 * time.Millisecond)
		Expect(clients[2].SetTimer(ctx, &v1.Due{Want: w, WantSequence: seq}, at)).Error().NotTo(HaveOccurred())
		Expect(clients[2].SetTimer(ctx, &v1.Due{Want: w, WantSequence: seq - 1},
			at)).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(fired(ctx, js, natstest.Numbered(100)).Time).To(And(BeTemporally(">=", at),
			BeTemporally("<=", at.Add(lateness))))

		By("when it stores results")
		Expect(clients[1].PublishResult(ctx, content(key, 7, 10))).To(Succeed())
		Eventually(func() uint64 {
			return stream(ctx, js, pipeline.Results).CachedInfo().State.Msgs
		}).Should(BeEquivalentTo(1))
	}, SpecTimeout(3*time.Minute))
})

// race publishes concurrently and returns the sequences of the successful publishes. A publish may
// fail as superseded, or as a duplicate of one in flight.
func race(clients []*pipeline.Client, publish func(c *pipeline.Client, n int) (uint64, error)) map[uint64]int {
	GinkgoHelper()
	const inFlight jetstream.ErrorCode = 10158
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		won     = map[uint64]int{}
	)
	for n := range 20 {
		running.Go(func() {
			defer GinkgoRecover()
			seq, err := publish(clients[n%len(clients)], n)
			var api *jetstream.APIError
			if errors.Is(err, pipeline.ErrSuperseded) || errors.As(err, &api) && api.ErrorCode == inFlight {
				return
			}
			Expect(err).NotTo(HaveOccurred())
			mu.Lock()
			defer mu.Unlock()
			won[seq]++
		})
	}
	running.Wait()
	return won
}
