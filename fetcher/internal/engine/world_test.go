package engine_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/fetcher/internal/admission"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/flight"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

// world is a broker with the streams of the pipeline, and what a spec does
// with them.
type world struct {
	ctx    context.Context //nolint:containedctx // a world lives as long as its spec
	server *natstest.Server
	js     jetstream.JetStream
	client *pipeline.Client
	epoch  int64
	clock  *clock
	// ending is closed by end, when the spec has seen enough.
	ending chan struct{}
	end    func()
}

func newWorld(o natstest.Options, t pipeline.Topology) *world {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	s, err := natstest.Run(o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	w := &world{ctx: ctx, server: s, clock: newClock(), ending: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.ending) })
	w.js = w.connect()
	w.epoch, err = pipeline.Ensure(ctx, w.js, t)
	Expect(err).NotTo(HaveOccurred())
	w.client = pipeline.NewClient(w.js)
	return w
}

func (w *world) connect() jetstream.JetStream {
	GinkgoHelper()
	js, closeConn, err := w.server.JetStream()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(closeConn)
	return js
}

// clock stands still until it is moved. It starts an hour ahead, so that no
// timer fires while a spec looks at it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now().Add(time.Hour).Truncate(time.Second)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// fetcherOptions are what a spec may change about a fetcher.
type fetcherOptions struct {
	config   engine.Config
	limits   admission.Limits
	get      get.Config
	now      func() time.Time
	log      io.Writer
	draining chan struct{}
	js       jetstream.JetStream
	registry *prometheus.Registry
}

// fetcher is an engine with all that belongs to it.
type fetcher struct {
	*engine.Engine
	world *world
	fetcherOptions
}

func (w *world) fetcher(change ...func(*fetcherOptions)) *fetcher {
	GinkgoHelper()
	o := fetcherOptions{
		config: engine.Config{
			MaxAttempts: 3, MaxDeliver: 5,
			Retry:         schedule.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
			MaxRetryAfter: time.Hour,
			Refresh:       schedule.Refresh{Min: time.Second, Max: 24 * time.Hour},
			Recheck:       time.Hour,
			Sharing:       flight.Config{Window: time.Second, Patience: 250 * time.Millisecond, Entries: 100, Bytes: 1 << 20},
			Heartbeat:     10 * time.Second,
		},
		limits: admission.Limits{
			Slots: 64, PerHost: 8, Share: 0.5,
			Patience: 250 * time.Millisecond, Pause: time.Second, MaxPause: 15 * time.Second,
		},
		get:      get.Defaults(),
		now:      w.clock.Now,
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
	gate, err := egress.New(egress.Config{AllowCIDRs: []string{"127.0.0.0/8"}}, egress.Options{})
	Expect(err).NotTo(HaveOccurred())
	metrics, err := engine.NewMetrics(o.registry)
	Expect(err).NotTo(HaveOccurred())
	getter, err := get.New(o.get, gate, get.Dependencies{Observer: metrics})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = getter.Run(running) }()
	DeferCleanup(func() { stop(); <-ended })
	limiter, err := admission.New(o.limits, o.now)
	Expect(err).NotTo(HaveOccurred())
	e, err := engine.New(o.config, engine.Dependencies{
		Client: pipeline.NewClient(o.js), Getter: getter, Limiter: limiter, Draining: o.draining,
		Now: o.now, Random: func() float64 { return 0.5 }, Log: zerolog.New(o.log), Metrics: metrics,
	})
	Expect(err).NotTo(HaveOccurred())
	return &fetcher{Engine: e, world: w, fetcherOptions: o}
}

// run lets a fetcher consume until the spec ends, or until it is stopped.
func (f *fetcher) run() (stop func()) {
	ctx, cancel := context.WithCancel(f.world.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer GinkgoRecover()
		Expect(pipeline.Consume(ctx, f.js, pipeline.ConsumeOptions{
			Stream: pipeline.Requests, Consumer: pipeline.FetcherConsumer, Concurrency: f.limits.Slots,
		}, f.Handle)).To(Succeed())
	}()
	stop = sync.OnceFunc(func() { close(f.draining); cancel(); <-ended })
	DeferCleanup(func() { f.world.end(); stop() })
	return stop
}

// inFlight returns the number of messages in work.
func (f *fetcher) inFlight() float64 {
	return f.metric("curlmethat_fetcher_in_flight_messages", "")
}

// parked returns how many attempts were put off for a cause.
func (f *fetcher) parked(cause string) int {
	return int(f.metric("curlmethat_fetcher_parked_total", cause))
}

// metric returns the value of a counter or gauge with one label value, or none.
func (f *fetcher) metric(name, label string) float64 {
	GinkgoHelper()
	families, err := f.registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	Fail("no metric " + name + " " + label)
	return 0
}

// next takes one message from the consumer, without handling it.
func (w *world) next() jetstream.Msg {
	GinkgoHelper()
	consumer, err := w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer)
	Expect(err).NotTo(HaveOccurred())
	m, err := consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
	Expect(err).NotTo(HaveOccurred())
	return m
}

// step lets the fetcher handle the next message, from begin to end.
func (f *fetcher) step() {
	GinkgoHelper()
	f.Handle(f.world.ctx, f.world.next())
}

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

// publish replaces the want of its key and returns its sequence.
func (w *world) publish(want *v1.Want) uint64 {
	GinkgoHelper()
	_, last, err := w.client.LastWant(w.ctx, pipeline.KeyOf(want))
	if !errors.Is(err, pipeline.ErrNoMessage) {
		Expect(err).NotTo(HaveOccurred())
	}
	sequence, err := w.client.PublishWant(w.ctx, want, last)
	Expect(err).NotTo(HaveOccurred())
	return sequence
}

// fire publishes a due as a fired timer does, and returns its sequence.
func (w *world) fire(due *v1.Due) uint64 {
	GinkgoHelper()
	data, err := proto.Marshal(due)
	Expect(err).NotTo(HaveOccurred())
	ack, err := w.js.Publish(w.ctx, pipeline.KeyOf(due.GetWant()).Due(), data)
	Expect(err).NotTo(HaveOccurred())
	return ack.Sequence
}

// timer is a pending timer.
type timer struct {
	*v1.Due
	at time.Time
}

// timer returns the pending timer of a key, or nil.
func (w *world) timerOf(k pipeline.Key) *timer {
	GinkgoHelper()
	stream, err := w.js.Stream(w.ctx, pipeline.Requests)
	Expect(err).NotTo(HaveOccurred())
	m, err := stream.GetLastMsgForSubject(w.ctx, k.Timer())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	due, err := pipeline.DecodeDue(k, m.Data)
	Expect(err).NotTo(HaveOccurred())
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at "))
	Expect(err).NotTo(HaveOccurred())
	return &timer{Due: due, at: at}
}

func (w *world) timer() *timer { GinkgoHelper(); return w.timerOf(key) }

// messages returns all that a stream holds, by sequence.
func (w *world) messages(name string) []*jetstream.RawStreamMsg {
	GinkgoHelper()
	stream, err := w.js.Stream(w.ctx, name)
	Expect(err).NotTo(HaveOccurred())
	info, err := stream.Info(w.ctx)
	Expect(err).NotTo(HaveOccurred())
	var all []*jetstream.RawStreamMsg
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(w.ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		all = append(all, m)
	}
	return all
}

// count returns how many messages a stream holds.
func (w *world) count(name string) int {
	GinkgoHelper()
	stream, err := w.js.Stream(w.ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return int(stream.CachedInfo().State.Msgs)
}

// contents returns how many bodies were handed to the writer.
func (w *world) contents() int {
	GinkgoHelper()
	stream, err := w.js.Stream(w.ctx, pipeline.Results)
	Expect(err).NotTo(HaveOccurred())
	info, err := stream.Info(w.ctx, jetstream.WithSubjectFilter("curl.result.content.>"))
	Expect(err).NotTo(HaveOccurred())
	return len(info.State.Subjects)
}

// results returns what was handed to the writer.
func (w *world) results() []*v1.Result {
	GinkgoHelper()
	var all []*v1.Result
	for _, m := range w.messages(pipeline.Results) {
		_, k, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		r, err := pipeline.DecodeResult(k, m.Data)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, r)
	}
	return all
}

// result returns the only thing that was handed to the writer.
func (w *world) result() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// deadLetters returns what was kept of failures.
func (w *world) deadLetters() []*v1.DeadLetter {
	GinkgoHelper()
	var all []*v1.DeadLetter
	for _, m := range w.messages(pipeline.Failures) {
		d := new(v1.DeadLetter)
		Expect(proto.Unmarshal(m.Data, d)).To(Succeed())
		all = append(all, d)
	}
	return all
}

// pending returns how many messages wait for, or are in work at, fetchers.
func (w *world) pending() uint64 {
	GinkgoHelper()
	consumer, err := w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer)
	Expect(err).NotTo(HaveOccurred())
	info, err := consumer.Info(w.ctx)
	Expect(err).NotTo(HaveOccurred())
	return info.NumPending + uint64(info.NumAckPending)
}

// origin is a web server that counts what it is asked for.
type origin struct {
	*httptest.Server
	gets atomic.Int32
}

func serve(handler http.HandlerFunc) *origin {
	o := new(origin)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.gets.Add(1)
		handler(w, r)
	}))
	DeferCleanup(o.Close)
	return o
}

// hangs returns a server that answers nobody before the spec ends.
func (w *world) hangs() *origin {
	o := serve(func(http.ResponseWriter, *http.Request) { <-w.ending })
	DeferCleanup(w.end)
	return o
}

// says answers every GET with a body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// fails answers every GET with a status.
func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret of the server", status) }
}
