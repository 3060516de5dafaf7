package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/session"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench runs sessions about one object on a real broker.
type bench struct {
	*WithT
	t        *testing.T
	server   *natstest.Server
	client   *pipeline.Client
	registry *prometheus.Registry
	log      *gbytes.Buffer
	config   session.Config
	deps     session.Deps
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server, js, _ := natstest.Ensured(t, pipeline.Topology{})
	b := &bench{
		WithT: NewWithT(t), t: t, server: server, client: pipeline.NewClient(js), registry: prometheus.NewRegistry(),
		log: gbytes.NewBuffer(), config: session.Config{
			InScope: func(namespace string) bool { return namespace == "ns" }, Workers: 1, CheckInterval: time.Hour,
		},
	}
	b.SetDefaultEventuallyTimeout(8 * time.Second) // less than the timeout of a request
	b.deps = session.Deps{
		Names:     func() []types.NamespacedName { return []types.NamespacedName{{Namespace: "ns", Name: "cm"}} },
		Reconcile: func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil },
		Audit:     func(ctx context.Context, _ func(types.NamespacedName)) { <-ctx.Done() },
		Epoch:     func(ctx context.Context) (int64, error) { return pipeline.Ensure(ctx, js, pipeline.Topology{}) },
		Client:    b.client, Index: wantindex.NewIndex(), Backlog: reconcile.NewBacklog(b.client),
		Clock: clock.RealClock{}, Health: process.NewHealth().Part("streams"), Log: zerolog.New(b.log),
		Metrics: session.NewMetrics(metric.New(b.registry, "watcher"), metric.Standard(b.registry)),
	}
	return b
}

// run runs sessions until end, and returns their error.
func (b *bench) run() (end context.CancelFunc, ended chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- session.NewRunner(b.config, b.deps).Run(ctx)
	}()
	b.t.Cleanup(func() {
		cancel()
		b.Eventually(ended).Should(BeClosed())
	})
	return cancel, ended
}

// becomes waits until a metric has a value.
func (b *bench) becomes(metric string, value int) {
	b.t.Helper()
	b.Eventually(func() (float64, error) {
		return suitetest.MetricValue(b.registry, "curlmethat_watcher_"+metric)
	}).Should(BeEquivalentTo(value), metric)
}

func (b *bench) publish(namespace, name, installation string) (key pipeline.Key) {
	b.t.Helper()
	want := natstest.Want(pipeline.Key{Namespace: namespace, Name: name, Key: "k"}, "https://example.com")
	want.Epoch, want.Installation = time.Now().Add(time.Hour).UnixMilli(), installation
	b.Expect(b.client.PublishWant(b.t.Context(), want, 0)).Error().NotTo(HaveOccurred())
	return pipeline.KeyOf(want)
}

func TestASessionReconcilesAllObjectsAndTheWantsInScopeAndThoseOfItsInstallation(t *testing.T) {
	t.Parallel()
	for installation, known := range map[string][]string{"": {"own", "bad"}, "ours": {"own", "bad", "left"}} {
		b := newBench(t)
		b.config.Installation = installation
		reconciled := make(chan string, 10)
		b.deps.Reconcile = func(_ context.Context, name types.NamespacedName) (time.Duration, error) {
			reconciled <- name.Name
			return 0, nil
		}
		gone := b.publish("ns", "gone", "")
		b.Expect(b.client.PublishTombstone(t.Context(), gone, 1)).Error().NotTo(HaveOccurred())
		b.publish("ns", "own", "theirs")
		b.publish("other", "left", "ours")
		b.publish("other", "theirs", "theirs")
		for _, key := range []string{"ns.bad.k", "other.bad.k", "nonsense"} {
			_, err := b.client.JetStream().Publish(t.Context(), "curl.want."+key, []byte("garbage"))
			b.Expect(err).NotTo(HaveOccurred())
		}
		b.run()
		b.becomes("sessions_total", 1)
		b.becomes("out_of_scope_wants", 5-len(known))
		var names []string
		b.deps.Index.Each(func(key pipeline.Key, _ wantindex.Want) { names = append(names, key.Name) })
		b.Expect(names).To(ConsistOf(known))
		objects := map[string]bool{}
		for range len(known) + 1 {
			name := ""
			b.Eventually(reconciled).Should(Receive(&name))
			objects[name] = true
		}
		b.Expect(objects).To(HaveLen(len(known)+1), "also those that were deleted earlier")
		b.Expect(b.server.Restart()).To(Succeed())
		b.becomes("sessions_total", 2)
		b.Expect(suitetest.Lines(b.log, "ignoring wants of other installations")).To(Equal(1))
	}
}

func TestAPurgeBeginsAnotherSessionLongBeforeTheNextComparison(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("ns", "wanted", "")
	b.run()
	b.becomes("sessions_total", 1)
	stream := suitetest.Sure(b.client.JetStream().Stream(t.Context(), pipeline.Requests))
	b.Expect(stream.Purge(t.Context())).To(Succeed())
	b.becomes("purges_total", 1)
	b.becomes("sessions_total", 2)
	b.Expect(b.deps.Index.Len()).To(BeZero())
}

func TestTheStreamIsComparedRegularlyAndADeletedOneIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.CheckInterval = 10 * time.Millisecond
	b.publish("ns", "wanted", "")
	b.run()
	b.becomes("sessions_total", 1)
	b.Expect(b.client.JetStream().DeleteStream(t.Context(), pipeline.Requests)).To(Succeed())
	b.becomes("sessions_total", 2)
	b.Expect(b.deps.Index.Len()).To(BeZero())
}

func TestWorkInProgressIsFinishedUnlessTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun, finish := make(chan context.Context), make(chan struct{})
	b.deps.Reconcile = func(ctx context.Context, _ types.NamespacedName) (time.Duration, error) {
		begun <- ctx
		select {
		case <-ctx.Done():
		case <-finish:
		}
		return 0, ctx.Err()
	}
	end, ended := b.run()
	abandoned := <-begun
	b.Expect(b.server.Restart()).To(Succeed())
	b.Eventually(abandoned.Done()).Should(BeClosed())
	finished := <-begun
	end()
	b.Consistently(finished.Done()).ShouldNot(BeClosed())
	b.Expect(ended).NotTo(Receive())
	close(finish)
	b.Eventually(ended).Should(Receive(BeNil()))
}

func TestAnObjectComesBackUntilItIsReconciled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.publish("ns", "cm", "")
	var calls atomic.Int32
	failed := errors.New("any")
	outcomes := []error{nil, failed, failed, pipeline.ErrSuperseded, reconcile.ErrBacklogFull, nil}
	b.deps.Reconcile = func(context.Context, types.NamespacedName) (again time.Duration, err error) {
		n := calls.Add(1)
		if n == 1 {
			again = time.Millisecond
		}
		for range 512 {
			b.deps.Backlog.Add("ns", 1)
		}
		return again, outcomes[n-1]
	}
	b.run()
	b.Eventually(calls.Load).Should(BeEquivalentTo(5))
	b.Consistently(calls.Load).Should(BeEquivalentTo(5), "fetchers have not received anything")
	natstest.AckRequests(t, b.client.JetStream())
	b.Eventually(calls.Load).Should(BeEquivalentTo(6))
	b.Expect(suitetest.Lines(b.log, "reconcile failed, retrying")).To(Equal(1), "an outage does not flood the log")
}
