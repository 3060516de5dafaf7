// Package session reads the stream of requests and reconciles all ConfigMaps, until that reading is outdated.
package session

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// requestTimeout is the timeout of a round of requests to the broker.
	requestTimeout = 10 * time.Second
	// maxPause and firstPause are the maximum and the first pause between attempts to begin a session.
	maxPause   = 5 * time.Second
	firstPause = 50 * time.Millisecond
)

// Config of a Runner.
type Config struct {
	// Installation marks the wants of this watcher and its standbys (empty: unknown). It distinguishes them from wants of
	// other installations once their namespace is no longer watched.
	Installation string
	// InScope reports whether a namespace is watched.
	InScope func(namespace string) bool
	// Workers is the maximum number of concurrent reconciles.
	Workers int
	// CheckInterval is the interval between comparisons of the stream with the session.
	CheckInterval time.Duration
}

// Deps are the dependencies of a Runner.
type Deps struct {
	// Names returns the names of all annotated ConfigMaps.
	Names func() []types.NamespacedName
	// Reconcile is the method of reconcile.Reconciler, and Audit is audit.Auditor.Run.
	Reconcile func(context.Context, types.NamespacedName) (again time.Duration, err error)
	Audit     func(ctx context.Context, enqueue func(types.NamespacedName))
	// Epoch returns the epoch of the stream of requests, and creates the streams if necessary.
	Epoch   func(context.Context) (int64, error)
	Client  *pipeline.Client
	Index   *wantindex.Index
	Backlog *reconcile.Backlog
	// Clock is the machine's clock, for all pauses.
	Clock clock.WithTicker
	// Health is ready while a session publishes.
	Health  *process.HealthPart
	Log     zerolog.Logger
	Metrics *Metrics
}

// Metrics are the metrics of a Runner.
type Metrics struct {
	queue            *kube.QueueMetrics
	sessions, purges prometheus.Counter
	outOfScope       prometheus.Gauge
}

// NewMetrics creates the metrics in the watcher's set, and in one with standard names.
func NewMetrics(set, standard *metric.Set) *Metrics {
	return &Metrics{
		sessions: set.Counter("sessions_total", "How often the watcher read the whole stream of requests."),
		purges: set.Counter("purges_total", "How often another client removed wants from the stream of requests. "+
			"The watcher fills it again at once."),
		outOfScope: set.Gauge("out_of_scope_wants",
			"Ignored wants of unwatched namespaces, from other installations."),
		queue: kube.NewQueueMetrics(standard, queueName),
	}
}

// Runner runs one session after another: it reads the stream of requests and publishes wants until that reading is
// outdated.
type Runner struct {
	config Config
	deps   Deps

	// current is the queue of the running session, if any.
	current atomic.Pointer[queue.Queue]
	// outOfScope is the last logged number of ignored wants.
	outOfScope int
}

// NewRunner returns a runner.
func NewRunner(c Config, d Deps) *Runner { return &Runner{config: c, deps: d} }

// Changed passes a changed object to the running session. A live change precedes the wants.
// Without a session nothing is missed, because each one begins with all objects.
func (r *Runner) Changed(name types.NamespacedName, live bool) {
	if q := r.current.Load(); q != nil {
		q.Changed(name, live)
	}
}

// Run publishes the wants of all objects until ctx is done. A session begins by reading the stream, and
// ends if the connection breaks or the stream was replaced or purged.
func (r *Runner) Run(ctx context.Context) error {
	pause := firstPause
	for logged := ""; r.connected(ctx); {
		began, err := r.session(ctx)
		if began {
			logged, pause = "", firstPause
		}
		switch {
		case ctx.Err() != nil: // the reason no longer matters
		case errors.Is(err, pipeline.ErrIncompatible):
			return err
		case errors.Is(err, errDisconnected): // logged by the connection
		case err.Error() != logged:
			logged = err.Error()
			r.deps.Log.Warn().Err(err).Msg("reading the stream of requests again")
		}
		select {
		case <-ctx.Done():
		case <-r.deps.Clock.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
	return nil
}

// session runs one session, and reports whether it began. Its error is not nil unless ctx is done.
func (r *Runner) session(ctx context.Context) (began bool, err error) {
	defer r.deps.Health.NotReady("the streams cannot be used")
	ctx, end := r.whileConnected(ctx)
	defer end()
	s, err := r.begin(ctx)
	if err != nil {
		return false, cmp.Or(context.Cause(ctx), err)
	}
	r.deps.Health.Ready()
	defer r.deps.Metrics.queue.Reset()
	r.current.Store(s.queue)
	defer r.current.Store(nil)
	return true, s.run(ctx)
}

// whileConnected returns a context that is done once the connection breaks, because the broker's responses
// are lost with it.
func (r *Runner) whileConnected(ctx context.Context) (context.Context, func()) {
	conn := r.deps.Client.JetStream().Conn()
	ctx, cancel := context.WithCancelCause(ctx)
	broken := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED)
	go func() {
		defer conn.RemoveStatusListener(broken)
		select {
		case <-ctx.Done():
		case <-broken:
			cancel(errDisconnected)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// connected waits for a connection to the broker. It returns false if ctx is done.
func (r *Runner) connected(ctx context.Context) bool {
	conn := r.deps.Client.JetStream().Conn()
	changed := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(changed)
	for !conn.IsConnected() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err() == nil
}

var (
	// errReload means that the stream of requests was replaced or purged.
	errReload = errors.New("the stream of requests was changed by another client")
	// errDisconnected means that the connection broke. The stream may have lost acknowledged messages.
	errDisconnected = errors.New("the connection to NATS is gone")
)
