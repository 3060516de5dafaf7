// Package session publishes wants while one reading of the stream of requests is valid, and then
// reads the stream again.
package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/backlog"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// requestTimeout is the timeout of a round of requests to the broker.
	requestTimeout = 10 * time.Second
	// sessionPause and firstPause are the longest and the first pause between attempts to begin a
	// session.
	sessionPause = 5 * time.Second
	firstPause   = 50 * time.Millisecond
)

// Config of a Runner.
type Config struct {
	// Workers is the maximum number of objects that are handled at a time.
	Workers int
	// CheckInterval is the interval between comparisons of the stream with the session.
	CheckInterval time.Duration
	// InScope reports whether a namespace is watched.
	InScope func(namespace string) bool
	// Installation is in the wants that this watcher and its standbys publish; empty: unknown.
	Installation string
}

// Objects are the annotated ConfigMaps.
type Objects interface {
	Names() []types.NamespacedName
}

// Reconciler brings the stream in line with one object.
type Reconciler interface {
	// Reconcile returns when to reconcile again, and an error if a retry makes sense.
	Reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error)
}

// Auditor finds wants without a fetch or timer.
type Auditor interface {
	// Run calls enqueue for the objects of such wants until ctx is done.
	Run(ctx context.Context, enqueue func(types.NamespacedName))
}

// Deps are the dependencies of a Runner.
type Deps struct {
	Client *pipeline.Client
	// Epoch returns the epoch of the stream of requests, and creates the stream if necessary.
	Epoch      func(context.Context) (int64, error)
	Index      *wantindex.Index
	Backlog    *backlog.Backlog
	Objects    Objects
	Reconciler Reconciler
	Auditor    Auditor
	// Health is ready while a session publishes.
	Health  *process.Part
	Clock   clock.WithTicker
	Log     zerolog.Logger
	Metrics *Metrics
}

// Runner runs one session after another.
type Runner struct {
	config Config
	deps   Deps
	// current is the queue of the running session, if any.
	current atomic.Pointer[queue.Work]
	// outOfScope is the last logged number of foreign wants.
	outOfScope int
}

// New returns a runner that does not run yet.
func New(c Config, d Deps) *Runner { return &Runner{config: c, deps: d} }

// Changed passes a changed object to the running session; a live change precedes the backlog.
// Without a session nothing is missed, because each one begins with all objects.
func (r *Runner) Changed(name types.NamespacedName, live bool) {
	if q := r.current.Load(); q != nil {
		q.Changed(name, live)
	}
}

// Run keeps the stream of requests in line with the objects until ctx is done. A session begins by
// reading the stream, and ends when the connection breaks or the stream was replaced.
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

// session runs one session, and reports whether it began. Its error is never nil before ctx is
// done.
func (r *Runner) session(ctx context.Context) (began bool, err error) {
	defer r.deps.Health.NotReady("the streams cannot be used")
	s, err := r.begin(ctx)
	if err != nil {
		return false, err
	}
	r.deps.Health.Ready()
	return true, r.run(ctx, s)
}

// connected waits for a connection to the broker; it returns false if ctx is done.
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
