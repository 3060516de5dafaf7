// Package broker stops and damages the broker, and checks that the system keeps its promises.
package broker_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestBroker(t *testing.T) { world.Run(t, "Broker") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const refreshKey = "x-kv8s.io/curl-refresh"

const (
	// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are
	// redelivered.
	shortAckWait = 3 * time.Second
	// aWhile is how long specs watch that something does not happen.
	aWhile = time.Second
)

var _ = Describe("The system on an unreliable broker", func() {
	DescribeTable("loses nothing when the broker stops under load", func(
		ctx SpecContext, end func(*natstest.Server),
	) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		load := w.Begin(ctx, 200)
		const outages = 2
		for n := range outages {
			load.EventuallyFills(ctx, 40+80*n)
			end(w.NATS)
			// The load keeps adding ConfigMaps, so each service notices the outage.
			for _, name := range world.Services() {
				Eventually(func() int { return len(w.Service(name).Log.Matching("no connection to NATS")) }).Should(Equal(n + 1))
			}
			Expect(w.NATS.Start()).To(Succeed())
		}
		load.EventuallyEnds(ctx, 3*time.Minute)
		for _, name := range world.Services() {
			Expect(w.Service(name).Log.Matching("no connection to NATS")).To(HaveLen(outages), "%s logs each outage once", name)
		}
	},
		Entry("after SIGTERM", (*natstest.Server).Stop),
		// The store is a slightly older copy, so messages that were acknowledged since are lost.
		Entry("after kill -9", func(server *natstest.Server) { Expect(server.Kill()).To(Succeed()) }),
	)

	It("fetches no satisfied key again after the broker lost its whole store", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		load := w.Begin(ctx, 60)
		load.EventuallyEnds(ctx, time.Minute)
		refreshed, cm := w.Fill(ctx, "refreshed", "before", world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		failing := w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL()))
		failing.EventuallyHasEvents(ctx, "BadStatus")
		w.EventuallyQuiet(ctx)

		Expect(w.NATS.Wipe()).To(Succeed())
		Expect(w.NATS.Start()).To(Succeed())

		page := w.Origin.Page("/new").Says("new")
		w.Create(ctx, "new", world.Asking("mydata="+page.URL())).EventuallyHasDataWithin(ctx, time.Minute, "mydata", "new")
		refreshed.Says("after")
		cm.EventuallyHasData(ctx, "mydata", "after")
		load.ConfigMaps[0].Put(ctx, "mydata", "changed by hand")
		load.ConfigMaps[0].EventuallyHasData(ctx, "mydata", "body 0")
		w.EventuallyQuiet(ctx)
		Expect(w.Stored(ctx, pipeline.Requests, "curl.want.>")).To(Equal(63), "wants are known again")
		for _, page := range load.Pages[1:] {
			Expect(page.Hits()).To(Equal(1))
		}
		for _, cm := range load.ConfigMaps[1:] {
			Expect(w.History.Writes(cm.Name)).To(Equal(1))
		}
		failing.HasEvents(ctx, "BadStatus")
	})

	DescribeTable("restores a lost stream or consumer:", func(
		ctx SpecContext, gets int, lose func(context.Context, jetstream.JetStream) error,
	) {
		w := env.World(ctx, world.Audited(world.Options{})) // the audit interval is also that of checks of the streams
		before, kept := w.Fill(ctx, "before", "before")
		after := w.Origin.Page("/after").Says("after")
		w.EventuallyQuiet(ctx)
		// On a busy machine, the audit may have requested a body again that was on its way.
		filling := before.Hits()
		Expect(lose(ctx, w.JetStream)).To(Succeed())
		w.Create(ctx, "new", world.Asking("mydata="+after.URL())).
			EventuallyHasDataWithin(ctx, 90*time.Second, "mydata", "after")
		kept.Ask(ctx, "mydata="+after.URL())
		kept.EventuallyHasDataWithin(ctx, 90*time.Second, "mydata", "after")
		Expect(before.Hits()-filling).To(BeNumerically("<=", gets), "GETs of held keys")
	},
		Entry("the stream of requests", 0, func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteStream(ctx, pipeline.Requests)
		}),
		Entry("the streams of results and failures", 0, func(ctx context.Context, js jetstream.JetStream) error {
			return errors.Join(js.DeleteStream(ctx, pipeline.Results), js.DeleteStream(ctx, pipeline.Failures))
		}),
		Entry("the consumer of the fetchers, with one more GET per key", 1,
			func(ctx context.Context, js jetstream.JetStream) error {
				return js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
			}),
		Entry("the consumer of the writers", 0, func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteConsumer(ctx, pipeline.Results, pipeline.WriterConsumer)
		}),
		Entry("all messages in the stream of requests", 0, func(ctx context.Context, js jetstream.JetStream) error {
			stream, err := js.Stream(ctx, pipeline.Requests)
			if err != nil {
				return err
			}
			return stream.Purge(ctx)
		}),
	)
})

// failedFetches are ConfigMaps whose fetches were given up, although their pages now work.
type failedFetches struct {
	*world.World
	objects []*world.ConfigMap
	before  []int
}

// letFail makes n fetches fail, and then repairs their pages.
func letFail(ctx context.Context, n int) *failedFetches {
	GinkgoHelper()
	w := env.World(ctx, world.Options{
		AckWait: shortAckWait,
		Flags:   map[string][]string{world.Fetcher: {"--max-attempts=1", "--recheck=1h"}},
	})
	f := &failedFetches{World: w}
	pages := w.Origin.Pages(n)
	for i, page := range pages {
		page.Fails(503)
		f.objects = append(f.objects, w.Create(ctx, fmt.Sprintf("cm-%03d", i), world.Asking("mydata="+page.URL())))
	}
	Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Failures, "curl.failure.>") }).
		WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Equal(n))
	w.EventuallyQuiet(ctx)
	w.EventuallyCaughtUp(ctx)
	for i, page := range pages {
		f.before = append(f.before, w.History.Writes(f.objects[i].Name))
		page.Says(body(i))
	}
	return f
}

func body(i int) string { return fmt.Sprintf("body %d", i) }

// replay starts `curlctl replay --all --wait`.
func (f *failedFetches) replay(args ...string) *process.Process {
	GinkgoHelper()
	p := suitetest.Must(process.Start(process.Program{
		Name: "curlctl", Path: f.Program("curlctl"),
		Args: append([]string{"replay", "--nats-url", f.Broker(), "--all", "--wait", "--yes", "--timeout=2m"}, args...),
	}))
	DeferCleanup(func() {
		if p.Running() {
			Expect(p.Kill()).To(Succeed())
		}
	})
	return p
}

// eventuallyFills waits until n ConfigMaps were written again.
func (f *failedFetches) eventuallyFills(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(ctx, func() (filled int) {
		for i, object := range f.objects {
			if f.History.Writes(object.Name) > f.before[i] {
				filled++
			}
		}
		return filled
	}).WithTimeout(time.Minute).WithPolling(5 * time.Millisecond).Should(BeNumerically(">=", n))
}

// shouldBeRight waits until every ConfigMap is up to date after exactly one write.
func (f *failedFetches) shouldBeRight(ctx context.Context) {
	GinkgoHelper()
	for i, object := range f.objects {
		object.EventuallyHasDataWithin(ctx, time.Minute, "mydata", body(i))
		object.EventuallyReports(ctx, "mydata", "")
	}
	f.EventuallyQuiet(ctx)
	f.EventuallyCaughtUp(ctx)
	for i, object := range f.objects {
		Expect(f.History.Writes(object.Name)-f.before[i]).To(Equal(1), "writes to %s", object.Name)
	}
}

// shouldEndWell waits until a replay ends, and expects that it found all failures and waited for their outcome.
func (f *failedFetches) shouldEndWell(ctx context.Context, p *process.Process) {
	GinkgoHelper()
	Eventually(p.Running).WithTimeout(2*time.Minute).Should(BeFalse(), "curlctl still runs")
	code := suitetest.Must(p.Wait(ctx))
	said := p.Log.String()
	Expect(code).To(BeZero(), "%s", said)
	fetched := 0 // also those of earlier replays that it waits for
	for _, outcome := range regexp.MustCompile(`(?m)^Outcome.*: (\d+) fetched\.$`).FindAllStringSubmatch(said, -1) {
		n := suitetest.Must(strconv.Atoi(outcome[1]))
		fetched += n
	}
	Expect(fetched).To(Equal(len(f.objects)), "%s", said)
	Expect(said).To(ContainSubstring("The writer has handled all of them."))
}

var _ = Describe("A replay", func() {
	It("resumes after the broker is restarted", func(ctx SpecContext) {
		f := letFail(ctx, 150)
		p := f.replay("--rate=40") // slow enough to be interrupted
		f.eventuallyFills(ctx, 20)
		Expect(p.Running()).To(BeTrue())
		f.NATS.Stop()
		Eventually(func() []string { return p.Log.Matching("Lost the connection to NATS") }).Should(HaveLen(1))
		Expect(f.NATS.Start()).To(Succeed())
		f.shouldEndWell(ctx, p)
		f.shouldBeRight(ctx)
	})

	It("is complete after an interrupted run, alongside another replay and with a backlog", func(ctx SpecContext) {
		f := letFail(ctx, 150)
		Expect(f.Fetcher().Kill()).To(Succeed())
		p := f.replay("--rate=40")
		Eventually(ctx, func() int { return f.Stored(ctx, pipeline.Requests, "curl.due.>") }).Should(BeNumerically(">=", 20))
		Expect(p.Stop(ctx)).To(Equal(6))
		Expect(p.Log.String()).To(ContainSubstring("safe to run it again"))

		var requested atomic.Int64
		sub := suitetest.Must(f.JetStream.Conn().Subscribe("curl.due.>", func(*nats.Msg) { requested.Add(1) }))
		DeferCleanup(sub.Unsubscribe)
		Expect(f.JetStream.Conn().Flush()).To(Succeed())
		var replays []*process.Process
		for range 3 {
			replays = append(replays, f.replay())
		}
		// All have requested everything, so none looks for failures after the first fetch.
		Eventually(requested.Load).WithTimeout(time.Minute).Should(BeNumerically(">=", 150*len(replays)))
		Eventually(ctx, func() int { return f.Stored(ctx, pipeline.Requests, "curl.due.>") }).Should(Equal(150))
		f.Fetcher().Restart(ctx)
		for _, p := range replays {
			f.shouldEndWell(ctx, p)
		}
		f.shouldBeRight(ctx)
	})
})
