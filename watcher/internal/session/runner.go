// Package session publishes what the objects want for as long as one reading of
// the stream of requests is valid, and then reads it anew.
package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// requestTimeout bounds a round of requests to the broker.
	requestTimeout = 10 * time.Second
	// sessionPause is the longest pause between tries to begin a session.
	sessionPause = 5 * time.Second
	// firstPause is the first one.
	firstPause = 50 * time.Millisecond
)

// Config of a Runner.
type Config struct {
	// Workers is the number of objects that are worked on at a time.
	Workers int
	// CheckInterval is how often the stream is compared with what was read.
	CheckInterval time.Duration
	// InScope reports whether a namespace is watched.
	InScope func(namespace string) bool
	// Installation marks the wants that this watcher, or one that it takes turns
	// with, has published; empty: none are known to be.
	Installation string
}

// Objects are the annotated ConfigMaps.
type Objects interface {
	// Names returns the names of all of them.
	Names() []types.NamespacedName
}

// Reconciler brings the stream in line with one object.
type Reconciler interface {
	// Reconcile returns when to look again, and an error when another try soon
	// is worth it.
	Reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error)
}

// Auditor finds wants that nothing is under way for.
type Auditor interface {
	// Run calls enqueue for the objects of such wants until ctx is done.
	Run(ctx context.Context, enqueue func(types.NamespacedName))
}

// Deps are what a Runner works with.
type Deps struct {
	// Client and Conn are the connection to the broker.
	Client *pipeline.Client
	Conn   *nats.Conn
	// Epoch returns the epoch of the stream of requests, created if need be.
	Epoch func(context.Context) (int64, error)
	// Index is filled from the stream.
	Index      *wantindex.Index
	Objects    Objects
	Reconciler Reconciler
	Auditor    Auditor
	// Health is ready while a session publishes.
	Health  *process.Part
	Clock   clock.WithTicker
	Log     zerolog.Logger
	Queue   *kube.QueueMetrics
	Started prometheus.Counter
	// Purged counts how often wants were found gone from the stream.
	Purged prometheus.Counter
	// OutOfScope is the number of wants that are left alone as they are not in
	// scope.
	OutOfScope prometheus.Gauge
}

// Runner runs one session after the other.
type Runner struct {
	config Config
	deps   Deps
	// current is the queue of the session that publishes, if there is one.
	current atomic.Pointer[queue.Work]
	// outOfScope is how many wants of others were last found.
	outOfScope int
}

// New returns a runner that does not run.
func New(c Config, d Deps) *Runner { return &Runner{config: c, deps: d} }

// Changed passes the name of an object that changed to the session that
// publishes: live, before the backlog. A session looks at all objects when it
// begins, so that nothing is missed without one.
func (r *Runner) Changed(name types.NamespacedName, live bool) {
	if q := r.current.Load(); q != nil {
		q.Changed(name, live)
	}
}

// Run keeps the stream of requests in line with the objects until ctx is done.
// Each session begins with reading the stream; it ends when the connection
// breaks, or when the stream turns out not to be the one that was read.
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
		case errors.Is(err, errDisconnected): // the connection has logged that
		case err.Error() != logged:
			logged = err.Error()
			r.deps.Log.Warn().Err(err).Msg("reading the stream of requests anew")
		}
		select {
		case <-ctx.Done():
		case <-r.deps.Clock.After(pause):
		}
		pause = min(2*pause, sessionPause)
	}
	return nil
}

// session runs one session, and reports whether it came to publish anything.
// Its error is never nil before ctx is done.
func (r *Runner) session(ctx context.Context) (began bool, err error) {
	defer r.deps.Health.NotReady("the streams cannot be used")
	s, err := r.begin(ctx)
	if err != nil {
		return false, err
	}
	r.deps.Health.Ready()
	return true, r.run(ctx, s)
}

// connected waits for a connection to the broker, and reports whether there is one:
// otherwise ctx is done.
func (r *Runner) connected(ctx context.Context) bool {
	changed := r.deps.Conn.StatusChanged(nats.CONNECTED)
	defer r.deps.Conn.RemoveStatusListener(changed)
	for !r.deps.Conn.IsConnected() && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err() == nil
}
