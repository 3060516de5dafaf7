package engine_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
)

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
	w := &world{ctx: ctx, server: pipelinetest.Broker(GinkgoTB(), o), clock: newClock(), ending: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.ending) })
	w.js = w.connect()
	w.epoch = must(pipeline.Ensure(ctx, w.js, t))
	w.client = pipeline.NewClient(w.js)
	return w
}

func (w *world) connect() jetstream.JetStream {
	GinkgoHelper()
	return pipelinetest.Connect(GinkgoTB(), w.server)
}

// clock is set by the spec. It starts an hour ahead, so that no timer fires during a spec.
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
	sequence := must(w.client.PublishWant(w.ctx, want, last))
	return sequence
}

// fire publishes a due like a fired timer and returns its sequence.
func (w *world) fire(due *v1.Due) uint64 {
	GinkgoHelper()
	return w.fireWith(nil, due)
}

// fireWith publishes a due with the header of its timer.
func (w *world) fireWith(header nats.Header, due *v1.Due) uint64 {
	GinkgoHelper()
	data := must(proto.Marshal(due))
	m := &nats.Msg{Subject: pipeline.KeyOf(due.GetWant()).Due(), Header: header, Data: data}
	ack := must(w.js.PublishMsg(w.ctx, m))
	return ack.Sequence
}
