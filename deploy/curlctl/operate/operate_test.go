package operate_test

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("The client of operators", func() {
	var (
		js     jetstream.JetStream
		client *operate.Client
	)
	BeforeEach(func() {
		_, js, _ = pipelinetest.Ensured(GinkgoTB(), pipeline.Topology{})
		client = operate.NewClient(js)
	})

	wanted := func(k pipeline.Key) *v1.Due {
		GinkgoHelper()
		due := pipelinetest.Due(GinkgoTB(), js, k)
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
			due := wanted(pipelinetest.Numbered(i))
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

	It("takes user and action of an audit record from its subject, and skips unreadable ones", func(ctx SpecContext) {
		Expect(client.PublishAudit(ctx, &v1.Audit{Action: "purge", User: "alice", BeganAt: timestamppb.Now()})).To(Succeed())
		forged := suitetest.Must(proto.Marshal(&v1.Audit{Action: "refetch", User: "alice", Selected: 7}))
		for subject, data := range map[string][]byte{
			"curl.record.replay.mallory.1": forged, "curl.record.replay.mallory.2": []byte("garbage"),
			"curl.record.replay.mallory.3.4": forged,
		} {
			Expect(client.JetStream().Publish(ctx, subject, data)).Error().NotTo(HaveOccurred())
		}
		var signed []string
		for a, err := range client.Audits(ctx) {
			Expect(err).NotTo(HaveOccurred())
			signed = append(signed, a.GetUser()+" "+a.GetAction())
		}
		Expect(signed).To(HaveExactElements("mallory replay", "alice purge"))
		unreadable, _ := client.Unread.Count()
		Expect(unreadable).To(Equal(2))
	})

	It("reads the audit lazily", func(ctx SpecContext) {
		const many = 1500 // with two records each, which is more than one window
		began := time.Now()
		at := func(i int) *timestamppb.Timestamp { return timestamppb.New(began.Add(time.Duration(i) * time.Second)) }
		for i := range many {
			a := &v1.Audit{Action: "replay", User: "ann", Filter: strconv.Itoa(i), BeganAt: at(i)}
			Expect(client.PublishAudit(ctx, a)).To(Succeed())
			if i == many-2 { // its end record comes last
				continue
			}
			a.EndedAt, a.Done = at(i), 1
			Expect(client.PublishAudit(ctx, a)).To(Succeed())
			Expect(client.PublishAudit(ctx, a)).To(Succeed(), "again, as after a lost acknowledgement")
		}
		ended := &v1.Audit{
			Action: "replay", User: "ann", Filter: strconv.Itoa(many - 2), BeganAt: at(many - 2),
			EndedAt: at(many), Done: 1,
		}
		Expect(client.PublishAudit(ctx, ended)).To(Succeed())
		read := func(limit int) (filters []string) {
			GinkgoHelper()
			for a, err := range client.Audits(ctx) {
				Expect(err).NotTo(HaveOccurred())
				Expect(a.GetDone()).To(BeEquivalentTo(1))
				if filters = append(filters, a.GetFilter()); len(filters) == limit {
					break
				}
			}
			return filters
		}
		before := js.Conn().Stats().InMsgs
		Expect(read(3)).To(Equal([]string{"1499", "1498", "1497"}))
		Expect(js.Conn().Stats().InMsgs - before).To(BeNumerically("<", 400))
		all := read(0)
		Expect(all).To(HaveLen(many))
		Expect(all[many-1]).To(Equal("0"))
	})

	It("cannot remove audit records", func(ctx SpecContext) {
		Expect(client.PublishAudit(ctx, &v1.Audit{Action: "purge", User: "alice", BeganAt: timestamppb.Now()})).To(Succeed())
		audit := suitetest.Must(js.Stream(ctx, pipeline.Audit))
		Expect(audit.Purge(ctx)).NotTo(Succeed())
		Expect(audit.DeleteMsg(ctx, 1)).NotTo(Succeed())
		rollup := nats.NewMsg("curl.record.purge.alice.2")
		rollup.Header.Set("Nats-Rollup", "all")
		Expect(js.PublishMsg(ctx, rollup)).Error().To(HaveOccurred())
		Expect(audit.Info(ctx)).To(HaveField("State.Msgs", BeEquivalentTo(1)))
		Expect(audit.CachedInfo().Config).To(And(HaveField("MaxAge", 90*24*time.Hour), HaveField("Discard",
			jetstream.DiscardNew)))
	})
})
