package engine_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// fetcherOptions are the options of a fetcher in a spec.
type fetcherOptions struct {
	config engine.Config
	// inProgressEvery, if set, is the interval of in-progress notifications.
	inProgressEvery time.Duration

	limits   throttle.Config
	egress   egress.Config
	get      get.Config
	clock    engine.Clock
	log      io.Writer
	draining chan struct{}
	js       jetstream.JetStream
	registry *prometheus.Registry
	tracer   *tracing.Tracer
	// signatures, if set, verifies wants before credentials are sent.
	signatures *signature.Verifier
}

// fetcher is an engine with its dependencies.
type fetcher struct {
	*engine.Engine
	world *world
	slots *throttle.Throttle
	drain func()
	fetcherOptions
}

func (w *world) fetcher(change ...func(*fetcherOptions)) *fetcher {
	GinkgoHelper()
	o := fetcherOptions{
		config: engine.Config{
			MaxAttempts:   3,
			MaxUnended:    pipeline.DefaultMaxUnended,
			Retry:         engine.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
			MaxRetryAfter: time.Hour,
			Refresh:       engine.Refresh{Min: time.Second},
			Recheck:       time.Hour,
			Sharing: sharedcall.Config{
				Window: time.Second, JoinWithin: 250 * time.Millisecond, Entries: 100, Bytes: 1 << 20,
			},
		},
		limits:   throttle.Defaults(),
		egress:   egress.Config{AllowCIDRs: []string{"127.0.0.0/8"}},
		get:      get.Defaults(),
		clock:    clockOf(w.clock.Now),
		log:      GinkgoWriter,
		draining: make(chan struct{}),
		registry: prometheus.NewRegistry(),
	}
	for _, c := range change {
		c(&o)
	}
	if o.js == nil {
		o.js = w.connect()
	}
	gate := must(egress.New(o.egress, egress.Deps{}))
	metrics := engine.NewMetrics(metric.New(o.registry, "fetcher"))
	getter := must(get.New(o.get, get.Deps{Gate: gate, Observe: metrics.ObservePhase}))
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = getter.Run(running) }()
	DeferCleanup(func() { stop(); <-ended })
	slots := throttle.New(o.limits)
	e := engine.New(o.config, engine.Deps{
		Client: pipeline.NewClient(o.js), Getter: getter, Throttle: slots, Draining: o.draining,
		Clock: o.clock, Random: func() float64 { return 0.5 }, Log: zerolog.New(o.log), Metrics: metrics, Tracer: o.tracer,
		Signatures: o.signatures,
	})
	f := &fetcher{Engine: e, world: w, slots: slots, fetcherOptions: o}
	f.drain = sync.OnceFunc(func() { close(f.draining) })
	DeferCleanup(func() { f.drain(); slots.Stop() })
	return f
}

// run consumes until the spec ends or stop is called.
func (f *fetcher) run() (stop func()) {
	ctx, cancel := context.WithCancel(f.world.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer GinkgoRecover()
		defer context.AfterFunc(ctx, f.slots.Stop)()
		Expect(pipeline.Consume(ctx, f.js, f.options(), f.Handle)).To(Succeed())
		f.slots.Stop()
	}()
	stop = sync.OnceFunc(func() { f.drain(); cancel(); <-ended })
	DeferCleanup(func() { f.world.end(); stop() })
	return stop
}

// inFlight returns the number of messages in flight.
func (f *fetcher) inFlight() float64 {
	return f.metric("curlmethat_fetcher_in_flight_messages", "")
}

// parked returns the number of parked attempts with a cause.
func (f *fetcher) parked(cause string) int {
	return int(f.metric("curlmethat_fetcher_parked_total", cause))
}

// metric returns a counter or gauge with at most one label value.
func (f *fetcher) metric(name, label string) float64 {
	GinkgoHelper()
	for series, value := range must(suitetest.Metrics(f.registry)) {
		if of, labels, _ := strings.Cut(series, "{"); of == name && (label == "" || strings.Contains(labels, `"`+label+`"`)) {
			return value
		}
	}
	Fail("no metric " + name + " " + label)
	return 0
}

// histogram returns the number and the sum of the observations of a histogram.
func (f *fetcher) histogram(name string) (count uint64, sum float64) {
	GinkgoHelper()
	families := must(f.registry.Gather())
	for _, family := range families {
		if family.GetName() == name {
			h := family.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	Fail("no metric " + name)
	return 0, 0
}

// next takes one message from the consumer.
func (w *world) next() jetstream.Msg {
	GinkgoHelper()
	consumer := must(w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer))
	return must(consumer.Next(jetstream.FetchMaxWait(5 * time.Second)))
}

// beginWithoutEnd records starts of the next message by processes that died.
func (w *world) beginWithoutEnd(times uint64) {
	GinkgoHelper()
	m := w.next()
	metadata := must(m.Metadata())
	data := must(proto.Marshal(&v1.Begun{Sequence: metadata.Sequence.Stream, Unended: times}))
	Expect(w.js.Publish(w.ctx, "curl.begun."+m.Subject(), data)).Error().NotTo(HaveOccurred())
	Expect(m.Nak()).To(Succeed())
}

// fetch publishes a want, makes the fetcher handle it, and returns its sequence.
func (f *fetcher) fetch(want *v1.Want) uint64 {
	GinkgoHelper()
	sequence := f.world.publish(want)
	f.step()
	return sequence
}

// fetchDue makes the fetcher handle a due of a want, and returns the sequence of the due.
func (f *fetcher) fetchDue(want *v1.Want, due *v1.Due) uint64 {
	GinkgoHelper()
	sequence := f.world.due(want, due)
	f.step()
	return sequence
}

// elapse lets time pass until the timer of the key fires, and makes the fetcher handle the due.
func (f *fetcher) elapse() {
	GinkgoHelper()
	t := f.world.timer()
	Expect(t).NotTo(BeNil())
	f.world.clock.Advance(t.at.Sub(f.world.clock.Now()))
	f.world.fire(t.Due)
	f.step()
}

// step makes the fetcher handle the next message.
func (f *fetcher) step() {
	GinkgoHelper()
	f.handle(f.world.next())
}

// handle makes the fetcher handle a message.
func (f *fetcher) handle(m jetstream.Msg) {
	pipeline.NewConsumer(f.js, f.options(), f.Handle).Handle(f.world.ctx, m)
}

func (f *fetcher) options() pipeline.ConsumeOptions {
	return pipeline.ConsumeOptions{
		Stream: pipeline.Requests, Consumer: pipeline.FetcherConsumer, Concurrency: f.limits.Slots,
		InProgressEvery: f.inProgressEvery, Poison: f.Poison, Observe: f.Observe,
	}
}

// clockOf is a broker's clock that the spec sets.
type clockOf func() time.Time

func (c clockOf) Now() time.Time    { return c() }
func (c clockOf) Observe(time.Time) {}
