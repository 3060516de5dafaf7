package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
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

// held serves a body once proceed is closed, and closes fetching at the request.
func held(body string) (o *origin, fetching, proceed chan struct{}) {
	GinkgoHelper()
	fetching, proceed = make(chan struct{}), make(chan struct{})
	return serve(func(w http.ResponseWriter, r *http.Request) {
		close(fetching)
		<-proceed
		says(body)(w, r)
	}), fetching, proceed
}

// timer is a pending timer.
type timer struct {
	*v1.Due
	at     time.Time
	header nats.Header
}

// beats counts the in-progress notifications to the server.
func (w *world) beats() func() int {
	GinkgoHelper()
	var mu sync.Mutex
	n := 0
	_, err := w.js.Conn().Subscribe("$JS.ACK."+pipeline.Requests+".>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if string(m.Data) == "+WPI" {
			n++
		}
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.js.Conn().Flush()).To(Succeed())
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// timerOf returns the pending timer of a key, or nil.
func (w *world) timerOf(k pipeline.Key) *timer {
	GinkgoHelper()
	stream := suitetest.Must(w.js.Stream(w.ctx, pipeline.Requests))
	m, err := stream.GetLastMsgForSubject(w.ctx, k.TimerSubject())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	due := suitetest.Must(pipeline.DecodeDue(k, m.Data))
	at := suitetest.Must(time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get("Nats-Schedule"), "@at ")))
	return &timer{Due: due, at: at, header: m.Header}
}

// waiting returns the keys that have a pending timer.
func (w *world) waiting(keys []pipeline.Key) (waiting []pipeline.Key) {
	GinkgoHelper()
	for _, k := range keys {
		if w.timerOf(k) != nil {
			waiting = append(waiting, k)
		}
	}
	return waiting
}

func (w *world) timer() *timer { GinkgoHelper(); return w.timerOf(key) }

// messages returns the messages of a stream, oldest first.
func (w *world) messages(stream string) []*jetstream.RawStreamMsg {
	GinkgoHelper()
	return natstest.Messages(GinkgoTB(), w.js, stream)
}

// contents returns the number of published bodies.
func (w *world) contents() int {
	GinkgoHelper()
	stream := suitetest.Must(w.js.Stream(w.ctx, pipeline.Results))
	info := suitetest.Must(stream.Info(w.ctx, jetstream.WithSubjectFilter("curl.result.content.>")))
	return len(info.State.Subjects)
}

// results returns the published results.
func (w *world) results() (all []*v1.Result) {
	GinkgoHelper()
	for _, m := range w.messages(pipeline.Results) {
		_, k, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, suitetest.Must(pipeline.DecodeResult(k, m.Data)))
	}
	return all
}

// result returns the only published result.
func (w *world) result() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// lastResult returns the newest result.
func (w *world) lastResult() *v1.Result {
	GinkgoHelper()
	all := w.results()
	Expect(all).NotTo(BeEmpty())
	return all[len(all)-1]
}

func (w *world) deadLetters() (all []*v1.DeadLetter) {
	GinkgoHelper()
	for _, m := range w.messages(pipeline.DeadLetters) {
		d := new(v1.DeadLetter)
		Expect(proto.Unmarshal(m.Data, d)).To(Succeed())
		all = append(all, d)
	}
	return all
}

// deadLetter returns the only dead letter.
func (w *world) deadLetter() *v1.DeadLetter {
	GinkgoHelper()
	all := w.deadLetters()
	Expect(all).To(HaveLen(1))
	return all[0]
}

// pending returns the number of undelivered and unacknowledged messages. The broker may count a published one late.
func (w *world) pending() uint64 {
	GinkgoHelper()
	consumer := suitetest.Must(w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer))
	info := suitetest.Must(consumer.Info(w.ctx))
	if n := info.NumPending + uint64(info.NumAckPending); n > 0 || info.Delivered.Stream >= w.published.Load() {
		return n
	}
	return 1
}

// named gives a want a numbered name.
func named(prefix string, n int) func(*v1.Want) {
	return func(w *v1.Want) { w.Name = fmt.Sprintf("%s-%04d", prefix, n) }
}

func in(namespace string) func(*v1.Want) {
	return func(w *v1.Want) { w.Namespace = namespace }
}

func expects(rules ...string) func(*v1.Want) { return func(w *v1.Want) { w.Expect = rules } }

func selects(text string) func(*v1.Want) { return func(w *v1.Want) { w.Select = text } }

func writeFile(name string, content []byte) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}

func TestEngine(t *testing.T) { suitetest.Run(t, "Engine") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

// world is a broker with the streams of the pipeline.
type world struct {
	ctx    context.Context //nolint:containedctx // a world lives as long as its spec
	server *natstest.Server
	js     jetstream.JetStream
	client *pipeline.Client
	epoch  int64
	clock  *clock
	// published is the sequence of the last want or due of the spec.
	published atomic.Uint64
	// ending is closed by end.
	ending chan struct{}
	end    func()
}

func newWorld(o natstest.Options, t pipeline.Topology) *world {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	w := &world{ctx: ctx, server: natstest.Broker(GinkgoTB(), o), clock: new(clock), ending: make(chan struct{})}
	w.clock.nanoseconds.Store(time.Now().Add(time.Hour).Truncate(time.Second).UnixNano())
	w.end = sync.OnceFunc(func() { close(w.ending) })
	w.js = w.connect()
	w.epoch = suitetest.Must(pipeline.Ensure(ctx, w.js, t))
	w.client = pipeline.NewClient(w.js)
	return w
}

func (w *world) connect() jetstream.JetStream {
	GinkgoHelper()
	return natstest.Connect(GinkgoTB(), w.server)
}

// clock is set by the spec. It starts an hour ahead, so that no timer fires during a spec.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) Now() time.Time { return time.Unix(0, c.nanoseconds.Load()) }

func (c *clock) Advance(d time.Duration) { c.nanoseconds.Add(int64(d)) }

var key = pipeline.Key{Namespace: "default", Name: "cool.map", Key: "my.data"}

// w is the world of the current spec.
var w *world

var _ = BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

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
	sequence := suitetest.Must(w.client.PublishWant(w.ctx, want, last))
	w.published.Store(sequence)
	return sequence
}

// fire publishes a due like a fired timer, with the trace of the pending one, and returns its sequence.
func (w *world) fire(due *v1.Due) uint64 {
	GinkgoHelper()
	k := pipeline.KeyOf(due.GetWant())
	m := &nats.Msg{Subject: k.DueSubject(), Header: nats.Header{}, Data: suitetest.Must(proto.Marshal(due))}
	if t := w.timerOf(k); t != nil && t.header["traceparent"] != nil {
		m.Header["traceparent"] = t.header["traceparent"]
	}
	sequence := suitetest.Must(w.js.PublishMsg(w.ctx, m)).Sequence
	w.published.Store(sequence)
	return sequence
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
	stream := suitetest.Must(w.js.Stream(w.ctx, pipeline.Requests))
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
	local    func() time.Time
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
	log   *gbytes.Buffer
	drain func()
	fetcherOptions
}

func (w *world) fetcher(change ...func(*fetcherOptions)) *fetcher {
	GinkgoHelper()
	o := fetcherOptions{
		config: engine.Config{
			Schedule: engine.Schedule{
				MaxAttempts:   3,
				Retry:         engine.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute},
				MaxRetryAfter: time.Hour,
				Refresh:       engine.Refresh{Min: time.Second},
				Recheck:       time.Hour,
			},
			Sharing: sharedcall.Config{
				Window: time.Second, JoinWithin: 250 * time.Millisecond, Entries: 100, Bytes: 1 << 20,
			},
		},
		limits:   throttle.Defaults(),
		egress:   egress.Config{AllowCIDRs: []string{"127.0.0.0/8"}},
		get:      get.Defaults(),
		clock:    clockOf(w.clock.Now),
		local:    w.clock.Now,
		draining: make(chan struct{}),
		registry: prometheus.NewRegistry(),
	}
	for _, c := range change {
		c(&o)
	}
	if o.js == nil {
		o.js = w.connect()
	}
	gate := suitetest.Must(egress.New(o.egress, egress.Deps{}))
	metrics := engine.NewMetrics(metric.New(o.registry, "fetcher"))
	getter := suitetest.Must(get.New(o.get, get.Deps{Gate: gate}))
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); getter.Run(running) }()
	DeferCleanup(func() { stop(); <-ended })
	slots, log := throttle.New(o.limits), gbytes.NewBuffer()
	e := engine.New(o.config, engine.Deps{
		Client: pipeline.NewClient(o.js), Getter: getter, Throttle: slots, Draining: o.draining,
		Clock: o.clock, Local: o.local, Random: func() float64 { return 0.5 }, Metrics: metrics,
		Log: zerolog.New(io.MultiWriter(log, GinkgoWriter)), Tracer: o.tracer, Signatures: o.signatures,
	})
	f := &fetcher{Engine: e, world: w, slots: slots, log: log, fetcherOptions: o}
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
		pipeline.Consume(ctx, f.js, f.options(), f.Handle)
		f.slots.Stop()
	}()
	stop = sync.OnceFunc(func() { f.drain(); cancel(); <-ended })
	DeferCleanup(func() { f.world.end(); stop() })
	return stop
}

// parked returns the number of parked attempts with a cause.
func (f *fetcher) parked(cause string) func() (float64, error) {
	return f.value(`parked_total{waits_for="` + cause + `"}`)
}

// value returns the sum of our series with a prefix.
func (f *fetcher) value(series string) func() (float64, error) {
	return func() (float64, error) { return suitetest.MetricValue(f.registry, "curlmethat_fetcher_"+series) }
}

// logged counts the lines of the log with a text.
func (f *fetcher) logged(text string) func() int {
	return func() int { return suitetest.Lines(f.log, text) }
}

// next takes one message from the consumer.
func (w *world) next() jetstream.Msg {
	GinkgoHelper()
	consumer := suitetest.Must(w.js.Consumer(w.ctx, pipeline.Requests, pipeline.FetcherConsumer))
	return suitetest.Must(consumer.Next(jetstream.FetchMaxWait(5 * time.Second)))
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
