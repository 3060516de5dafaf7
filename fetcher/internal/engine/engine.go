package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/logsample"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
)

// Getter makes GETs.
type Getter interface {
	// Do makes one GET; the error is a *get.Error, or that of ctx.
	Do(context.Context, get.Request) (get.Response, error)
	// Key returns which requests may share one.
	Key(get.Request) get.Key
}

// Deps of an Engine; all are needed.
type Deps struct {
	// Client publishes and reads the messages of the pipeline.
	Client *pipeline.Client
	// Getter makes GETs.
	Getter Getter
	// Throttle decides when a GET may be made.
	Throttle *throttle.Throttle
	// Draining is closed when the process is to end.
	Draining <-chan struct{}
	// Now is the clock for everything that is scheduled.
	Now func() time.Time
	// Random returns numbers in [0, 1), for jitter.
	Random func() float64
	// Log gets a line for each outcome, within the bounds of package logsample.
	Log zerolog.Logger
	// Tracer makes a span for each message; nil: none.
	Tracer *tracing.Tracer
	// Metrics counts them.
	Metrics *Metrics
}

// Engine handles messages. It is safe for concurrent use.
type Engine struct {
	cfg          Config
	deps         Deps
	shared       *sharedcall.Group[request, fetched]
	backpressure *backpressure
	lines        *logsample.Log
}

// New checks the configuration.
func New(cfg Config, deps Deps) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Client == nil || deps.Getter == nil || deps.Throttle == nil || deps.Draining == nil ||
		deps.Now == nil || deps.Random == nil || deps.Metrics == nil {
		return nil, errors.New("set up engine: a dependency is missing")
	}
	shared, err := sharedcall.New[request, fetched](cfg.Sharing, deps.Now)
	if err != nil {
		return nil, fmt.Errorf("set up engine: %w", err)
	}
	return &Engine{cfg: cfg, deps: deps, shared: shared, backpressure: newBackpressure(deps.Log), lines: logsample.New(deps.Log)}, nil
}

// Handle does what a message asks for and acknowledges it. Its context is not
// cancelled by the end of the process; Handle ends by itself within the bound
// of one GET and a publish.
func (e *Engine) Handle(ctx context.Context, m jetstream.Msg) {
	e.deps.Metrics.inFlight.Inc()
	defer e.deps.Metrics.inFlight.Dec()
	lease := hold(m, e.cfg.Heartbeat)
	t, err := e.decode(m) //nolint:contextcheck // a trace context is read by way of a context; nothing waits
	ctx = e.begin(ctx, t)
	ended := e.handle(ctx, t, err)
	lease.end()
	e.report(t, ended)
	acknowledge(m, ended)
	t.setSpanOutcome(ended)
}

// handle follows a message, or what is wrong with it, as far as it goes.
func (e *Engine) handle(ctx context.Context, t *trigger, malformed error) result {
	if malformed != nil {
		return e.deadLetterMalformed(ctx, t, malformed)
	}
	if t.tombstone() {
		return result{outcome: tombstone}
	}
	if t.deliveries > e.cfg.MaxDeliver {
		return e.giveUp(ctx, t, poisoned())
	}
	if stop := e.confirm(ctx, t); stop.outcome != "" {
		return stop
	}
	if t.kind == pipeline.KindWant && t.want.GetSettled() != nil {
		return e.keepInSync(ctx, t)
	}
	got, err := e.fetch(ctx, t)
	switch {
	case errors.Is(err, sharedcall.ErrSlow):
		return e.park(ctx, t, sharedCallSlow, 0)
	case got.busy != nil:
		return e.park(ctx, t, parkCause(got.busy.Cause), got.busy.Wait)
	case got.err != nil:
		e.deps.Metrics.observeStaleness(t, e.deps.Now())
		return e.failed(ctx, t, failureOf(got.err))
	}
	e.deps.Metrics.observeStaleness(t, e.deps.Now())
	t.gotResponse = true
	return e.succeeded(ctx, t, got.response)
}
