package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
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

// next takes one message from the consumer.
func (w *world) next() jetstream.Msg {
	GinkgoHelper()
	consumer := must(w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer))
	return must(consumer.Next(jetstream.FetchMaxWait(5 * time.Second)))
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
		InProgressEvery: f.inProgressEvery, Observe: f.Observe,
	}
}

// clockOf is a broker's clock that the spec sets.
type clockOf func() time.Time

func (c clockOf) Now() time.Time    { return c() }
func (c clockOf) Observe(time.Time) {}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func every(d time.Duration) func(*v1.Want) {
	return func(w *v1.Want) { w.Refresh = durationpb.New(d) }
}

// tagged responds with an ETag, and with 304 to its validator.
func tagged(tag, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, body)
	}
}

var _ = Describe("A good response", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("is published with everything that the fast path of the writer needs", func() {
		o := serve(says("hello there"))
		want := w.want(o.URL)
		sequence := w.fetcher().fetch(want)
		r := w.result()
		Expect(r.GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Expect(r.GetContent().GetSha256()).To(Equal(digest("hello there")))
		Expect(r.GetSequence()).To(Equal(sequence))
		Expect(r.GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
		Expect(r.GetWant().GetEpoch()).To(Equal(w.epoch))
		Expect(r.GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(r.GetWant().GetResourceVersion()).To(Equal("7"))
		Expect(r.GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.timer()).To(BeNil(), "there is no refresh")
		Eventually(w.pending).Should(BeZero())
	})

	It("is followed by a GET within the interval of the annotation, whatever Cache-Control and Expires say", func() {
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/fresh" {
				w.Header().Set("Cache-Control", "no-cache")
				http.Redirect(w, r, "/fresh", http.StatusFound)
				return
			}
			w.Header().Set("Cache-Control", "public, max-age=31536000, s-maxage=31536000, immutable")
			w.Header().Set("Expires", "Fri, 31 Dec 2100 23:59:59 GMT")
			says("hello there")(w, r)
		})
		f := w.fetcher()
		for _, path := range []string{"/fresh", "/moved"} {
			f.fetch(w.want(o.URL+path, every(10*time.Minute)))
			for range 2 { // the first interval has a random part
				Expect(w.timer().at.Sub(w.clock.Now())).To(BeNumerically("<=", 11*time.Minute), path)
				f.elapse()
			}
		}
	})

	It("makes GETs conditional for less than a day, and not after a failure or if a person requests one", func() {
		var conditional atomic.Bool
		handler := func(w http.ResponseWriter, r *http.Request) {
			conditional.Store(r.Header.Get("If-None-Match") != "")
			tagged(`"v1"`, "hello there")(w, r)
		}
		o := serve(handler)
		f := w.fetcher()
		f.fetch(w.want(o.URL, every(time.Hour)))
		since, refreshes := w.clock.Now(), 0
		for ; w.clock.Now().Sub(since) < 24*time.Hour; refreshes++ {
			f.elapse()
			if !conditional.Load() {
				break
			}
		}
		Expect(refreshes).To(BeNumerically(">", 15))
		Expect(w.clock.Now().Sub(since)).To(BeNumerically("<=", 24*time.Hour))

		f.elapse()
		Expect(conditional.Load()).To(BeTrue(), "the unconditional GET renews the trust")
		timer := w.timer()
		timer.Cause = v1.Cause_CAUSE_NOW // as curlctl refetch does
		w.fire(timer.Due)
		f.step()
		Expect(conditional.Load()).To(BeFalse())

		f.elapse()
		Expect(conditional.Load()).To(BeTrue())
		o.now(fails(http.StatusServiceUnavailable))
		f.elapse()
		o.now(handler)
		f.elapse()
		Expect(conditional.Load()).To(BeFalse())
	})

	It("to a refused condition ends conditional GETs of the URL", func() {
		var refused atomic.Int32
		o := serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				refused.Add(1)
				fails(http.StatusPreconditionFailed)(w, r)
				return
			}
			tagged(`"v1"`, "hello there")(w, r)
		})
		f := w.fetcher()
		f.fetch(w.want(o.URL, every(10*time.Minute)))
		for range 5 {
			f.elapse()
			Expect(w.timer().GetFirstFailedAt()).To(BeNil())
		}
		Expect(refused.Load()).To(BeEquivalentTo(1))
	})

	DescribeTable("or failure is dropped if its want was replaced during the fetch",
		func(respond http.HandlerFunc, change func(*v1.Want)) {
			o, f := serve(w.replacing(respond, change)), w.fetcher()
			f.fetch(w.want(o.URL+"/old", change))
			Expect(w.results()).To(BeEmpty())
			Expect(w.deadLetters()).To(BeEmpty())
			Expect(w.timer()).To(BeNil())

			f.step() // the new want is its own trigger
			Expect(w.result().GetWant().GetUrl()).To(HaveSuffix("/new"))
			Eventually(w.pending).Should(BeZero())
		},
		Entry("with refresh", says("hello there"), every(10*time.Minute)),
		Entry("without refresh", says("hello there"), func(*v1.Want) {}),
		Entry("after the last attempt", fails(http.StatusNotFound), func(*v1.Want) {}),
	)

	It("is published even if a replica does not have its want yet", func() {
		w.replicaLags()
		w.fetcher().fetch(w.want(serve(says("hello there")).URL))
		Expect(w.result().GetContent().GetBody()).To(BeEquivalentTo("hello there"))
		Eventually(w.pending).Should(BeZero())
	})

	It("is dropped if its key is no longer wanted", func() {
		o := serve(func(rw http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			_, last, err := w.client.LastWant(w.ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.client.PublishTombstone(w.ctx, key, last)).Error().NotTo(HaveOccurred())
			says("late")(rw, r)
		})
		f := w.fetcher()
		f.fetch(w.want(o.URL))
		f.step()
		Expect(w.results()).To(BeEmpty())
		Eventually(w.pending).Should(BeZero())
	})
})

var _ = Describe("A body at the limit of the broker", func() {
	const maxPayload = 64 << 10
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{MaxPayload: maxPayload}, pipeline.Topology{}) })

	It("replaces the status annotation, which the writer then reads", func() {
		body := strings.Repeat("x", maxPayload-8<<10)
		o := serve(says(body))
		w.fetcher().fetch(w.want(o.URL, func(w *v1.Want) { w.Status = strings.Repeat("s", 16<<10) }))
		r := w.result()
		Expect(r.GetContent().GetBody()).To(HaveLen(len(body)))
		Expect(r.GetWant().GetStatus()).To(BeEmpty())
		Expect(r.GetWant().GetReadFirst()).To(BeTrue())
	})

	It("is refused as too large if it still does not fit", func() {
		o := serve(says(strings.Repeat("x", maxPayload)))
		w.fetcher().fetch(w.want(o.URL, every(10*time.Minute)))
		Expect(w.result().GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE))
		Expect(w.deadLetters()).To(HaveLen(1))
		Expect(w.timer().GetCached()).To(BeNil())
		Eventually(w.pending).Should(BeZero())
	})
})
