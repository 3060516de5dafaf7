package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"
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

func TestEngine(t *testing.T) { suitetest.Run(t, "Engine") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// world is a broker with the streams of the pipeline.
type world struct {
	ctx    context.Context //nolint:containedctx // a world lives as long as its spec
	server *natstest.Server
	js     jetstream.JetStream
	client *pipeline.Client
	epoch  int64
	clock  *clock
	// ending is closed by end.
	ending chan struct{}
	end    func()
}

func newWorld(o natstest.Options, t pipeline.Topology) *world {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	w := &world{ctx: ctx, server: natstest.Broker(GinkgoTB(), o), clock: newClock(), ending: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.ending) })
	w.js = w.connect()
	w.epoch = must(pipeline.Ensure(ctx, w.js, t))
	w.client = pipeline.NewClient(w.js)
	return w
}

func (w *world) connect() jetstream.JetStream {
	GinkgoHelper()
	return natstest.Connect(GinkgoTB(), w.server)
}

// clock is set by the spec. It starts an hour ahead, so that no timer fires during a spec.
type clock struct{ nanoseconds atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.nanoseconds.Store(time.Now().Add(time.Hour).Truncate(time.Second).UnixNano())
	return c
}

func (c *clock) Now() time.Time { return time.Unix(0, c.nanoseconds.Load()) }

func (c *clock) Advance(d time.Duration) { c.nanoseconds.Add(int64(d)) }

var key = pipeline.Key{Namespace: "default", Name: "cool.map", Key: "my.data"}

// want returns a want of the key for a URL.
func (w *world) want(url string, change ...func(*v1.Want)) *v1.Want {
	want := &v1.Want{
		Namespace: key.Namespace, Name: key.Name, Key: key.Key, Uid: "uid", ResourceVersion: "7",
		Url: url, Epoch: w.epoch, Cause: v1.Cause_CAUSE_NEW, Status: `{"some":"status"}`,
	}
	for _, c := range change {
		c(want)
	}
	return want
}

// publish replaces the want of its key and returns the sequence.
func (w *world) publish(want *v1.Want) uint64 {
	GinkgoHelper()
	_, last, err := w.client.LastWant(w.ctx, pipeline.KeyOf(want))
	if !errors.Is(err, pipeline.ErrNoMessage) {
		Expect(err).NotTo(HaveOccurred())
	}
	return must(w.client.PublishWant(w.ctx, want, last))
}

// fire publishes a due like a fired timer, with the trace of the pending one, and returns its sequence.
func (w *world) fire(due *v1.Due) uint64 {
	GinkgoHelper()
	k := pipeline.KeyOf(due.GetWant())
	m := &nats.Msg{Subject: k.Due(), Header: nats.Header{}, Data: must(proto.Marshal(due))}
	if t := w.timerOf(k); t != nil && t.header["traceparent"] != nil {
		m.Header["traceparent"] = t.header["traceparent"]
	}
	return must(w.js.PublishMsg(w.ctx, m)).Sequence
}

// publishMany publishes wants of a namespace for different URLs of a server, and returns their keys.
func (w *world) publishMany(o *origin, n int, namespace string, change ...func(*v1.Want)) (keys []pipeline.Key) {
	GinkgoHelper()
	for i := range n {
		want := w.want(fmt.Sprintf("%s/%d", o.URL, i), append(change, in(namespace), named("cm", i))...)
		w.publish(want)
		keys = append(keys, pipeline.KeyOf(want))
	}
	return keys
}

// due publishes a want, acknowledges it, and fires a due for it.
func (w *world) due(want *v1.Want, due *v1.Due) (sequence uint64) {
	GinkgoHelper()
	due.Want, due.WantSequence = want, w.publish(want)
	Expect(w.next().Ack()).To(Succeed())
	return w.fire(due)
}

// replicaLags makes reads of the stream respond like an empty replica, until it catches up.
func (w *world) replicaLags() (catchUp func()) {
	GinkgoHelper()
	w.answersReads(false)
	sub, err := w.js.Conn().Subscribe("$JS.API.DIRECT.GET."+pipeline.Requests+".>", func(m *nats.Msg) {
		defer GinkgoRecover()
		Expect(m.RespondMsg(&nats.Msg{
			Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}},
		})).To(Succeed())
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.js.Conn().Flush()).To(Succeed())
	return func() {
		GinkgoHelper()
		Expect(sub.Unsubscribe()).To(Succeed())
		w.answersReads(true)
	}
}

// answersReads determines whether the server itself responds.
func (w *world) answersReads(yes bool) {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx, pipeline.Requests))
	config := stream.CachedInfo().Config
	config.AllowDirect = yes
	Expect(w.js.UpdateStream(w.ctx, config)).Error().NotTo(HaveOccurred())
}

// origin is a web server that counts requests.
type origin struct {
	*httptest.Server

	gets    atomic.Int32
	handler atomic.Pointer[http.HandlerFunc]
}

func serve(handler http.HandlerFunc) *origin {
	o := new(origin)
	o.now(handler)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.gets.Add(1)
		(*o.handler.Load())(w, r)
	}))
	DeferCleanup(o.Close)
	return o
}

// now replaces the response.
func (o *origin) now(handler http.HandlerFunc) { o.handler.Store(&handler) }

// hangs returns a server that does not respond before the spec ends.
func (w *world) hangs() *origin {
	o := serve(func(http.ResponseWriter, *http.Request) { <-w.ending })
	DeferCleanup(w.end)
	return o
}

// replacing replaces the want of /old by one of /new before it responds.
func (w *world) replacing(respond http.HandlerFunc, change ...func(*v1.Want)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		defer GinkgoRecover()
		if r.URL.Path == "/old" {
			w.publish(w.want("http://"+r.Host+"/new", change...))
		}
		respond(rw, r)
	}
}

// says responds with a body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// retryLater responds with a status and Retry-After.
func retryLater(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		fails(status)(w, r)
	}
}

// fails responds with a status.
func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret of the server", status) }
}

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
