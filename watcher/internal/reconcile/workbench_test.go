package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	coalesce = 250 * time.Millisecond
	repeat   = 10 * time.Minute
	// maxEvents is the Event budget of a namespace, which refills in refill.
	maxEvents = 1000
	refill    = 500 * time.Second
)

var cm = types.NamespacedName{Namespace: "ns", Name: "cm"}

func key(k string) pipeline.Key {
	return pipeline.Key{Namespace: cm.Namespace, Name: cm.Name, Key: k}
}

// bench is a reconciler with a real broker, a fake clock and one object.
type bench struct {
	*WithT
	*reconcile.Reconciler
	t        *testing.T
	client   *pipeline.Client
	registry *prometheus.Registry
	broker   *natstest.Server
	verifier *signature.Verifier
	index    *wantindex.Index
	backlog  *reconcile.Backlog
	clock    *clocktesting.FakeClock
	stamps   *clocktesting.FakeClock // of the broker
	object   *annotated.Object
	others   []*annotated.Object
	log      *gbytes.Buffer
	events   kube.EventBudget
	emitted  []kube.Event
	refuse   error
	// mute drops the acknowledgements of publishes.
	mute bool
	// counts is the number of visits of all objects, each of which takes countTakes.
	counts     int
	countTakes time.Duration
}

// lossy is the connection of a bench.
type lossy struct {
	jetstream.JetStream
	b *bench
}

// PublishMsg publishes a message. If the bench is mute, the acknowledgement is lost.
func (l lossy) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, m, opts...)
	if l.b.mute {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

func newBench(t *testing.T, change ...func(*reconcile.Deps)) *bench {
	t.Helper()
	broker := natstest.Broker(t, natstest.Options{})
	js := natstest.Connect(t, broker, nats.ReconnectBufSize(-1)) // fail fast
	registry := prometheus.NewRegistry()
	metrics := reconcile.NewMetrics(metric.New(registry, "watcher"))
	b := &bench{
		WithT: NewWithT(t), t: t, registry: registry, broker: broker, index: wantindex.NewIndex(), log: gbytes.NewBuffer(),
		clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)),
	}
	b.stamps = clocktesting.NewFakeClock(b.clock.Now().Add(time.Hour))
	epoch := suitetest.Sure(pipeline.Ensure(t.Context(), js, pipeline.Topology{}))
	b.index.Reset(epoch, nil)
	b.object = &annotated.Object{
		Meta: informer.Meta{NamespacedName: cm, UID: "uid", Version: 1}, MainAnnotatedAt: b.clock.Now(),
		Request: annotation.Request{Present: true},
		Owners:  map[string]annotation.Ownership{},
	}
	b.client = pipeline.NewClient(lossy{js, b})
	b.backlog = reconcile.NewBacklog(b.client)
	b.events = kube.EventBudget{
		Budget:     budget.New(budget.Config{Burst: maxEvents, Refill: refill}, b.clock.Now),
		OverBudget: metrics.EventsOverBudget, Log: zerolog.New(b.log),
	}
	seed, keys, err := signature.WriteFiles(t.TempDir())
	b.Expect(err).NotTo(HaveOccurred())
	signer := suitetest.Sure(signature.LoadSigner(seed))
	b.verifier, err = signature.LoadVerifier(keys)
	b.Expect(err).NotTo(HaveOccurred())
	deps := reconcile.Deps{
		Objects: b, Index: b.index, Backlog: b.backlog, Client: b.client, Clock: b.clock, Log: zerolog.New(b.log),
		Metrics: metrics, Object: b.Get, Record: b.Record, Signer: signer, BrokerClock: b.stamps,
	}
	for _, c := range change {
		c(&deps)
	}
	b.Reconciler = reconcile.New(reconcile.Config{
		Coalesce: coalesce, Repeat: repeat, MaxRemovals: reconcile.MaxRemovals{Keys: 50, Percent: 20},
	}, deps)
	return b
}

// Get returns another object by name, or else the object.
func (b *bench) Get(name types.NamespacedName) *annotated.Object {
	for _, o := range b.others {
		if o.NamespacedName == name {
			return o
		}
	}
	return b.object
}

// Each visits the objects.
func (b *bench) Each(visit func(*annotated.Object)) {
	b.counts++
	b.clock.Step(b.countTakes)
	if b.object != nil {
		visit(b.object)
	}
	for _, o := range b.others {
		visit(o)
	}
}

// Listed reports that all namespaces are listed.
func (b *bench) Listed(string) bool { return true }

// Record records an Event within the budget, unless refuse is set.
func (b *bench) Record(_ context.Context, e kube.Event) (written bool, short *budget.Shortage, err error) {
	short = b.events.Take(e.Namespace)
	if written = short == nil && b.refuse == nil; written {
		b.emitted = append(b.emitted, e)
	}
	return written, short, b.refuse
}

// request makes the object request exactly these keys.
func (b *bench) request(url string, keys ...string) {
	b.object.Request.Pairs = nil
	for _, k := range keys {
		b.object.Request.Pairs = append(b.object.Request.Pairs, annotation.Pair{Key: k, URL: url})
		b.object.Owners[k] = annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	}
}

// sum is the digest of a body.
const sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// write acts like the writer: the object holds a body for the want of a key.
func (b *bench) write(k string) {
	b.t.Helper()
	want, seq, err := b.client.LastWant(b.t.Context(), key(k))
	b.Expect(err).NotTo(HaveOccurred())
	s := b.object.Status.Status()
	s.Keys[k] = status.Entry{
		URL: want.GetUrl(), SHA256: sum, Fence: status.Fence{Epoch: want.GetEpoch(), Seq: seq},
	}
	b.object.Status = annotated.EntriesOf(s, nil)
	b.object.Owners[k] = annotation.Ownership{State: annotation.Ours}
}

// reconcile reconciles the object, which must succeed.
func (b *bench) reconcile() (again time.Duration) {
	b.t.Helper()
	return suitetest.Sure(b.Reconcile(b.t.Context(), cm))
}

// try reconciles the object, and returns the error.
func (b *bench) try() error {
	_, err := b.Reconcile(b.t.Context(), cm)
	return err
}

// reconcileLater reconciles after the coalescing interval.
func (b *bench) reconcileLater() time.Duration {
	b.t.Helper()
	b.clock.Step(coalesce)
	return b.reconcile()
}

// published returns the number of messages published to the fetchers.
func (b *bench) published() int {
	b.t.Helper()
	return b.last(pipeline.Requests)
}

// requests returns the number of requests to the writer.
func (b *bench) requests() int {
	b.t.Helper()
	return b.last(pipeline.Results)
}

// last returns the last sequence of a stream.
func (b *bench) last(name string) int {
	b.t.Helper()
	return int(natstest.State(b.t, b.client.JetStream(), name).LastSeq)
}

// want returns the want of a key, which must be signed.
func (b *bench) want(k string) *v1.Want {
	b.t.Helper()
	want, _, err := b.client.LastWant(b.t.Context(), key(k))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.verifier.Verify(want)).To(Succeed())
	return want
}

func (b *bench) cause(k string) v1.Cause {
	b.t.Helper()
	return b.want(k).GetCause()
}

// reasons returns the reasons of the Events so far.
func (b *bench) reasons() []string {
	reasons := []string{}
	for _, e := range b.emitted {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// awaitBroker reconciles until the broker responds again.
func (b *bench) awaitBroker() (again time.Duration) {
	b.t.Helper()
	b.Eventually(func() (err error) {
		again, err = b.Reconcile(b.t.Context(), cm)
		return err
	}).WithTimeout(30 * time.Second).Should(Succeed())
	return again
}
