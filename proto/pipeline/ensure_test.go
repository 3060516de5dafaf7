package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = DescribeTable("The flaw of NATS", func(version, flaw string) {
	Expect(pipeline.ServerFlaw(version)).To(Equal(flaw))
},
	Entry("2.11", "2.11.9", "upgrade NATS 2.11.9 to 2.14.7 or newer: it cannot schedule messages (ADR-51)"),
	Entry("2.12", "2.12.0", "upgrade NATS 2.12.0 to 2.14.7 or newer: "+
		"any client may purge any subject by schedule headers (nats-server#8055, #8135)"),
	Entry("2.14 with the leak", "2.14.6", "upgrade NATS 2.14.6 to 2.14.7 or newer: "+
		"it leaks the entries of expired messages (nats-server#8594)"),
	Entry("a release candidate", "2.14.7-RC.1", "upgrade NATS 2.14.7-RC.1 to 2.14.7 or newer: "+
		"it leaks the entries of expired messages (nats-server#8594)"),
	Entry("the oldest supported version", pipeline.MinServer, ""),
	Entry("the version that is tested", "2.15.3", ""),
	Entry("a build from source", "dev", ""),
)

var _ = Describe("Ensure", func() {
	It("creates the streams and consumers", func(ctx SpecContext) {
		ensure(pipeline.Topology{MaxResultBytes: 1 << 20})

		requests := stream(ctx, pipeline.Requests)
		Expect(epoch).To(Equal(requests.CachedInfo().Created.UnixMilli()))
		expectRequests(requests.CachedInfo().Config)

		results := config(ctx, pipeline.Results)
		Expect(results.Retention).To(Equal(jetstream.WorkQueuePolicy))
		Expect(results.Discard).To(Equal(jetstream.DiscardNew))
		Expect(results.MaxBytes).To(BeEquivalentTo(1 << 20))

		failures := config(ctx, pipeline.DeadLetters)
		Expect(failures.MaxAge).To(Equal(14 * 24 * time.Hour))

		for of, name := range map[string]string{
			pipeline.Requests: pipeline.FetcherConsumer,
			pipeline.Results:  pipeline.WriterConsumer,
		} {
			c := suitetest.Must(js.Consumer(ctx, of, name))
			Expect(c.CachedInfo().Config.AckPolicy).To(Equal(jetstream.AckExplicitPolicy))
			Expect(c.CachedInfo().Config.AckWait).To(Equal(pipeline.AckWait))
		}
	})

	It("writes nothing if everything exists", func(ctx SpecContext) {
		seen := apiCalls()
		Expect(pipeline.Ensure(ctx, js, pipeline.Topology{})).To(Equal(epoch))
		Expect(seen()).To(ConsistOf(
			"$JS.API.STREAM.INFO.CURL_REQUESTS", "$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher",
			"$JS.API.STREAM.INFO.CURL_RESULTS", "$JS.API.CONSUMER.INFO.CURL_RESULTS.writer",
			"$JS.API.STREAM.INFO.CURL_FAILURES",
		))
	})

	It("writes nothing after it has updated a stream", func(ctx SpecContext) {
		fetchers := consumer(ctx)
		fetchers.MaxAckPending = 7
		suitetest.Must(js.UpdateConsumer(ctx, pipeline.Requests, fetchers))
		other := pipeline.Topology{MaxResultBytes: 1 << 20, DeadLetterBytes: 2 << 20, DeadLetterAge: time.Hour}
		for range 2 { // Compare changes nothing
			Expect(pipeline.Differences(ctx, js, other)).To(ConsistOf(
				ContainSubstring("consumer fetcher of stream CURL_REQUESTS does not have the configuration"),
				ContainSubstring("stream CURL_RESULTS does not have the configuration"),
				ContainSubstring("stream CURL_FAILURES does not have the configuration"),
			))
		}
		suitetest.Must(pipeline.Ensure(ctx, js, other))
		Expect(config(ctx, pipeline.Results).MaxBytes).To(BeEquivalentTo(1 << 20))
		Expect(config(ctx, pipeline.DeadLetters).MaxBytes).To(BeEquivalentTo(2 << 20))
		Expect(config(ctx, pipeline.DeadLetters).MaxAge).To(Equal(time.Hour))
		Expect(consumer(ctx).MaxAckPending).To(Equal(64 << 10))

		seen := apiCalls()
		suitetest.Must(pipeline.Ensure(ctx, js, other))
		Expect(seen()).To(HaveEach(ContainSubstring(".INFO.")))
	})

	It("keeps raised limits if none are given, and creates new streams with the defaults", func(ctx SpecContext) {
		limits := func() []int64 {
			GinkgoHelper()
			results, failures := config(ctx, pipeline.Results), config(ctx, pipeline.DeadLetters)
			return []int64{results.MaxBytes, failures.MaxBytes, int64(failures.MaxAge)}
		}
		const day = int64(24 * time.Hour)
		Expect(limits()).To(Equal([]int64{4 << 30, 1 << 30, 14 * day}))
		raised := pipeline.Topology{
			MaxResultBytes: 5 << 30, DeadLetterBytes: 2 << 30, DeadLetterAge: 30 * 24 * time.Hour,
		}
		for _, topology := range []pipeline.Topology{raised, {}} {
			suitetest.Must(pipeline.Ensure(ctx, js, topology))
			Expect(limits()).To(Equal([]int64{5 << 30, 2 << 30, 30 * day}))
			Expect(pipeline.Differences(ctx, js, pipeline.Topology{})).To(BeEmpty())
		}
		Expect(js.DeleteStream(ctx, pipeline.Results)).To(Succeed())
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Expect(limits()).To(Equal([]int64{4 << 30, 2 << 30, 30 * day}))
	})

	It("with KeepExisting creates only missing streams", func(ctx SpecContext) {
		Expect(js.DeleteStream(ctx, pipeline.Results)).To(Succeed())
		seen := apiCalls()
		other := pipeline.Topology{KeepExisting: true, MaxResultBytes: 1 << 20, DeadLetterAge: time.Hour}
		suitetest.Must(pipeline.Ensure(ctx, js, other))
		Expect(seen()).To(ContainElements("$JS.API.STREAM.CREATE.CURL_RESULTS",
			"$JS.API.CONSUMER.CREATE.CURL_RESULTS.writer"))
		Expect(seen()).NotTo(ContainElement(Or(ContainSubstring("UPDATE"),
			ContainSubstring("CONSUMER.CREATE.CURL_REQUESTS"))))
		Expect(config(ctx, pipeline.Results).MaxBytes).To(BeEquivalentTo(1 << 20))
		Expect(config(ctx, pipeline.DeadLetters).MaxAge).To(Equal(14 * 24 * time.Hour))
	})

	DescribeTable("updates a consumer that cannot be read", func(ctx SpecContext, change func(*jetstream.ConsumerConfig)) {
		required := consumer(ctx)
		changed := required
		change(&changed)
		suitetest.Must(js.UpdateConsumer(ctx, pipeline.Requests, changed))
		Expect(consumer(ctx)).NotTo(Equal(required))
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Expect(consumer(ctx)).To(Equal(required))
	},
		Entry("by its batch", func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }),
		Entry("by its expiry", func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = time.Second }),
		Entry("by its bytes", func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 1000 }),
		Entry("without a priority group", func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPinned, []string{"a"}
			c.PinnedTTL = time.Minute
		}),
		Entry("once no service has run for long", func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Hour }),
	)

	It("updates older streams and keeps the operator's settings", func(ctx SpecContext) {
		blank(natstest.Options{})
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: pipeline.Requests, Subjects: []string{"curl.want.>"}, MaxMsgsPerSubject: 5, MaxAge: time.Hour,
			MaxMsgs: 100, MaxBytes: 1 << 20, NoAck: true,
			RePublish:        &jetstream.RePublish{Source: ">", Destination: "live.>"},
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: "curl.want.>", Destination: "curl.due.>"},
			ConsumerLimits:   jetstream.StreamConsumerLimits{InactiveThreshold: time.Hour},
			Metadata:         map[string]string{"team": "platform"},
			Placement:        &jetstream.Placement{Tags: []string{"ssd"}},
		})
		Expect(err).NotTo(HaveOccurred())
		_, err = js.CreateConsumer(ctx, pipeline.Requests, jetstream.ConsumerConfig{
			Durable: pipeline.FetcherConsumer, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3, HeadersOnly: true,
			BackOff: []time.Duration{pipeline.AckWait, time.Minute}, FilterSubject: "curl.want.>",
			Metadata: map[string]string{"team": "platform"},
		})
		Expect(err).NotTo(HaveOccurred())

		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))

		have := config(ctx, pipeline.Requests)
		expectRequests(have)
		Expect(have.Metadata).To(HaveKeyWithValue("team", "platform"))
		Expect(have.Placement).To(HaveField("Tags", []string{"ssd"}))

		c := consumer(ctx)
		Expect(c.FilterSubjects).To(ConsistOf("curl.want.>", "curl.due.>"))
		Expect(c.FilterSubject).To(BeEmpty())
		Expect(c.AckWait).To(Equal(pipeline.AckWait))
		Expect(c.BackOff).To(BeEmpty())
		Expect(c.MaxDeliver).To(Equal(-1))
		Expect(c.HeadersOnly).To(BeFalse())
		Expect(c.InactiveThreshold).To(BeZero())
		Expect(c.Metadata).To(HaveKeyWithValue("team", "platform"))
	})

	DescribeTable("reports properties that cannot be changed, and the fix:",
		func(ctx SpecContext, prepare func(context.Context), texts ...string) {
			blank(natstest.Options{})
			prepare(ctx)
			_, err := pipeline.Ensure(ctx, js, pipeline.Topology{})
			Expect(err).To(MatchError(pipeline.ErrIncompatible))
			for _, text := range texts {
				Expect(err).To(MatchError(ContainSubstring(text)))
			}
		},
		Entry("retention", createStreams(jetstream.StreamConfig{
			Name: pipeline.Requests, Subjects: []string{"curl.want.>"}, Retention: jetstream.WorkQueuePolicy,
		}), "CURL_REQUESTS", "retention WorkQueue instead of Limits", "nats stream rm CURL_REQUESTS"),
		Entry("mirror", createStreams(
			jetstream.StreamConfig{Name: "ORIGIN", Subjects: []string{"origin.>"}},
			jetstream.StreamConfig{Name: pipeline.DeadLetters, Mirror: &jetstream.StreamSource{Name: "ORIGIN"}},
		), "CURL_FAILURES", "mirror", "nats stream rm CURL_FAILURES"),
		Entry("several at once", createStreams(
			jetstream.StreamConfig{Name: "ORIGIN", Subjects: []string{"origin.>"}},
			jetstream.StreamConfig{
				Name: pipeline.Results, Subjects: []string{"curl.result.>"}, Storage: jetstream.MemoryStorage,
				Sources: []*jetstream.StreamSource{{Name: "ORIGIN"}},
			},
		), "CURL_RESULTS", "retention", "storage", "sources", "nats stream rm CURL_RESULTS"),
		Entry("a push consumer", replaceConsumer(pipeline.Results, jetstream.ConsumerConfig{
			Durable: pipeline.WriterConsumer, DeliverSubject: "somewhere", AckPolicy: jetstream.AckExplicitPolicy,
		}), "writer", "CURL_RESULTS", "is a push consumer", "nats consumer rm CURL_RESULTS writer"),
		Entry("a consumer without acknowledgement", replaceConsumer(pipeline.Requests, jetstream.ConsumerConfig{
			Durable: pipeline.FetcherConsumer, AckPolicy: jetstream.AckNonePolicy,
		}), "fetcher", "CURL_REQUESTS", "acknowledgement", "nats consumer rm CURL_REQUESTS fetcher"),
	)

	It("creates the streams once under concurrent calls", func(ctx SpecContext) {
		blank(natstest.Options{})
		const callers = 8
		epochs := make(chan int64, callers)
		var running sync.WaitGroup
		for range callers {
			js := natstest.Connect(GinkgoTB(), server)
			running.Go(func() {
				defer GinkgoRecover()
				// A server that is creating a stream may respond to other requests too late.
				Eventually(ctx, func() error {
					epoch, err := pipeline.Ensure(ctx, js, pipeline.Topology{})
					if err == nil {
						epochs <- epoch
					}
					return err
				}).Should(Succeed())
			})
		}
		running.Wait()
		close(epochs)
		first := <-epochs
		for epoch := range epochs {
			Expect(epoch).To(Equal(first))
		}
	})

	It("starts a new epoch with a new stream", func(ctx SpecContext) {
		same, _, err := pipeline.Epoch(ctx, js)
		Expect(err).NotTo(HaveOccurred())
		Expect(same).To(Equal(epoch))

		Expect(js.DeleteStream(ctx, pipeline.Requests)).To(Succeed())
		Expect(pipeline.Epoch(ctx, js)).Error().To(MatchError(jetstream.ErrStreamNotFound))
		after := suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Expect(after).To(BeNumerically(">", epoch))
	})

	It("keeps the epoch across a restart and a purge", func(ctx SpecContext) {
		suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://a.example"), 0))
		Expect(stream(ctx, pipeline.Requests).Purge(ctx)).To(Succeed())
		Expect(server.Restart()).To(Succeed())
		same, first, err := pipeline.Epoch(ctx, natstest.Connect(GinkgoTB(), server))
		Expect(err).NotTo(HaveOccurred())
		Expect(same).To(Equal(epoch))
		Expect(first).To(BeEquivalentTo(2))
	})
})

// expectRequests expects the properties of the stream of requests that the pipeline relies on.
func expectRequests(have jetstream.StreamConfig) {
	GinkgoHelper()
	Expect(have.Subjects).To(ConsistOf("curl.want.>", "curl.due.>", "curl.timer.>", "curl.ended.>"))
	Expect(have.MaxMsgsPerSubject).To(BeEquivalentTo(1))
	Expect([]int64{have.MaxMsgs, have.MaxBytes, int64(have.MaxAge)}).To(Equal([]int64{-1, -1, 0}),
		"a limit would delete timers")
	Expect([]bool{have.AllowMsgSchedules, have.AllowMsgTTL, !have.NoAck}).To(HaveEach(true))
	Expect(have.SubjectTransform).To(BeNil(), "a want would be stored as something else")
	Expect(have.ConsumerLimits).To(BeZero())
}

// createStreams returns a function that creates the given streams.
func createStreams(configs ...jetstream.StreamConfig) func(context.Context) {
	return func(ctx context.Context) {
		for _, c := range configs {
			suitetest.Must(js.CreateStream(ctx, c))
		}
	}
}

// replaceConsumer returns a function that creates everything and replaces a consumer of a stream.
func replaceConsumer(stream string, by jetstream.ConsumerConfig) func(context.Context) {
	return func(ctx context.Context) {
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Expect(js.DeleteConsumer(ctx, stream, by.Durable)).To(Succeed())
		if by.DeliverSubject == "" {
			suitetest.Must(js.CreateConsumer(ctx, stream, by))
		} else {
			suitetest.Must(js.CreatePushConsumer(ctx, stream, by))
		}
	}
}

// stream looks up a stream.
func stream(ctx context.Context, name string) jetstream.Stream {
	GinkgoHelper()
	return suitetest.Must(js.Stream(ctx, name))
}

// config returns the configuration of a stream.
func config(ctx context.Context, name string) jetstream.StreamConfig {
	GinkgoHelper()
	return stream(ctx, name).CachedInfo().Config
}

// consumer returns the configuration of the fetchers' consumer.
func consumer(ctx context.Context) jetstream.ConsumerConfig {
	GinkgoHelper()
	return suitetest.Must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).CachedInfo().Config
}

// apiCalls records JetStream API calls. The returned function lists their subjects.
func apiCalls() func() []string {
	GinkgoHelper()
	nc := natstest.Connect(GinkgoTB(), server).Conn()
	sub := suitetest.Must(nc.SubscribeSync(">"))
	Expect(nc.Flush()).To(Succeed())
	var subjects []string
	return func() []string {
		GinkgoHelper()
		const mark = "end.of.calls" // arrives after everything else that js has sent
		Expect(js.Conn().Publish(mark, nil)).To(Succeed())
		for {
			m := suitetest.Must(sub.NextMsg(10 * time.Second))
			if m.Subject == mark {
				return subjects
			}
			if strings.HasPrefix(m.Subject, "$JS.API.") {
				subjects = append(subjects, m.Subject)
			}
		}
	}
}

// Replicated streams check the conditions of a publish in another order, and against publishes in
// flight. Any replica may respond to a read.
var _ = Describe("A cluster of three servers", func() {
	var clients []*pipeline.Client
	BeforeEach(func() {
		servers, _ := natstest.Cluster(GinkgoTB())
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
		again := suitetest.Must(pipeline.Ensure(ctx, clients[1].JetStream(), pipeline.Topology{}))
		Expect(again).To(Equal(epoch), "all servers report the same epoch")
		for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters} {
			Expect(config(ctx, name).Replicas).To(Equal(3))
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
			seq := suitetest.Must(clients[0].PublishWant(ctx, want, 0))
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
		seq := suitetest.Must(clients[1].PublishWant(ctx, w, 0))
		at := time.Now().Add(500 * time.Millisecond)
		Expect(clients[2].SetTimer(ctx, &v1.Due{Want: w, WantSequence: seq}, at)).Error().NotTo(HaveOccurred())
		Expect(clients[2].SetTimer(ctx, &v1.Due{Want: w, WantSequence: seq - 1},
			at)).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(fired(ctx, natstest.Numbered(100)).Time).To(And(BeTemporally(">=", at),
			BeTemporally("<=", at.Add(lateness))))

		By("when it stores results")
		Expect(clients[1].PublishResult(ctx, content(key, 7, 10))).To(Succeed())
		Eventually(func() uint64 {
			return stream(ctx, pipeline.Results).CachedInfo().State.Msgs
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
