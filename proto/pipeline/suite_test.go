package pipeline_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestPipeline(t *testing.T) {
	t.Parallel() // with the plain tests
	suitetest.Run(t, "Pipeline")
}

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}

// fetcher has the options of a fetcher.
var fetcher = pipeline.ConsumeOptions{Stream: pipeline.Requests, Consumer: pipeline.FetcherConsumer, Concurrency: 4}

// server is the broker of the current spec, js a connection to it, and client a client on that.
var (
	server *natstest.Server
	js     jetstream.JetStream
	epoch  int64
	client *pipeline.Client
)

var _ = BeforeEach(func() { ensure(pipeline.Topology{}) })

// ensure runs a broker with all streams and consumers.
func ensure(t pipeline.Topology) {
	GinkgoHelper()
	server, js, epoch = natstest.Ensured(GinkgoTB(), t)
	client = pipeline.NewClient(js)
}

// blank runs a broker without streams.
func blank(o natstest.Options) {
	GinkgoHelper()
	server = natstest.Broker(GinkgoTB(), o)
	js = natstest.Connect(GinkgoTB(), server)
	client = pipeline.NewClient(js)
}

// sequence returns the sequence of the want of a key.
func sequence(ctx context.Context, k pipeline.Key) uint64 {
	GinkgoHelper()
	_, seq, err := client.LastWant(ctx, k)
	Expect(err).NotTo(HaveOccurred())
	return seq
}

// recording records the calls of a Consume that runs in the background.
type recording struct {
	done chan struct{}

	mu             sync.Mutex
	began, subject []string
	dispositions   []pipeline.Disposition
	changes        []error
}

// add appends to one of the lists of a recording.
func add[T any](r *recording, to *[]T, value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, value)
}

// list returns a copy of one of the lists of a recording.
func list[T any](r *recording, of *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*of)
}

func (r *recording) begun() []string   { return list(r, &r.began) }
func (r *recording) handled() []string { return list(r, &r.subject) }
func (r *recording) states() []error   { return list(r, &r.changes) }

// state returns the last reported state.
func (r *recording) state() error {
	if all := r.states(); len(all) > 0 {
		return all[len(all)-1]
	}
	return context.DeadlineExceeded
}

// ended returns the names of the dispositions.
func (r *recording) ended() (words []string) {
	for _, d := range list(r, &r.dispositions) {
		words = append(words, d.String())
	}
	return words
}

// errors returns the errors of the dispositions that have one.
func (r *recording) errors() (errs []error) {
	for _, d := range list(r, &r.dispositions) {
		if d.Err() != nil {
			errs = append(errs, d.Err())
		}
	}
	return errs
}

// always returns a handler with the same disposition for every message.
func always(d pipeline.Disposition) pipeline.Handler {
	return func(context.Context, *pipeline.Delivery) pipeline.Disposition { return d }
}

// acking returns a handler that acknowledges a message when do returns.
func acking(do func(context.Context, *pipeline.Delivery)) pipeline.Handler {
	return func(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
		do(ctx, d)
		return pipeline.Ack()
	}
}

// consume runs Consume until the spec ends.
func consume(
	ctx context.Context, js jetstream.JetStream, o pipeline.ConsumeOptions, handle pipeline.Handler,
) *recording {
	ctx, cancel := context.WithCancel(ctx)
	r := &recording{done: make(chan struct{})}
	o.State = func(err error) { add(r, &r.changes, err) }
	o.Observe = func(m *pipeline.Delivery, d pipeline.Disposition) {
		add(r, &r.subject, m.Subject())
		add(r, &r.dispositions, d)
	}
	go func() {
		defer GinkgoRecover()
		defer close(r.done)
		pipeline.Consume(ctx, js, o, func(ctx context.Context, m *pipeline.Delivery) pipeline.Disposition {
			add(r, &r.began, m.Subject())
			return handle(ctx, m)
		})
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(r.done).Should(BeClosed())
	})
	return r
}
