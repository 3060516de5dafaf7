package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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
