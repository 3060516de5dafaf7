package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Config configures an Engine.
type Config struct {
	Schedule

	// Sharing limits the time and the number of shared GETs.
	Sharing sharedcall.Config
	// ResultBytes is the budget of published bytes of one namespace.
	ResultBytes budget.Config
	// Processing is the budget of time, in nanoseconds, in which bodies of one namespace are decompressed and rules and
	// selections evaluated. Only one evaluation runs at a time, so the rules of one namespace could delay all others.
	Processing budget.Config
	// DeadLetters is the budget of dead letters of one namespace.
	DeadLetters budget.Config
}

// Clock is the broker's clock.
type Clock interface {
	// Now returns the broker's time.
	Now() time.Time
	// Observe adjusts the clock to a time stamp of the broker.
	Observe(stamp time.Time)
}

// Deps are the dependencies of an Engine.
type Deps struct {
	Client   *pipeline.Client
	Getter   *get.Client
	Throttle *throttle.Throttle
	// Signatures verifies wants before credentials are sent or a dead letter has a part of the response. Nil means that
	// all count as signed.
	Signatures *signature.Verifier
	// Draining is closed at the start of the shutdown.
	Draining <-chan struct{}
	// Clock is the clock of all schedules.
	Clock Clock
	// Local is the clock of budgets and back-pressure, which would last too long if the broker's clock was set
	// back meanwhile.
	Local func() time.Time
	// Random returns numbers in [0, 1), for jitter.
	Random func() float64
	// Log gets a line for each outcome, within the limits of process.SampledLog.
	Log zerolog.Logger
	// Tracer makes a span for each message. Nil means none.
	Tracer  *tracing.Tracer
	Metrics *Metrics
}

// Engine handles messages. It is safe for concurrent use.
type Engine struct {
	cfg          Config
	deps         Deps
	shared       *sharedcall.Group[get.Request, attemptEnd]
	backpressure *backpressure
	rules        *rule.Evaluator
	resultBytes  *budget.Budget
	processing   *budget.Budget
	deadLetters  *budget.Budget
	lines        *process.SampledLog
}

// New returns an engine with a valid configuration.
func New(cfg Config, deps Deps) *Engine {
	e := &Engine{
		cfg: cfg, deps: deps, backpressure: newBackpressure(deps.Log), lines: process.NewSampledLog(deps.Log),
		shared:      sharedcall.New[get.Request, attemptEnd](cfg.Sharing, deps.Clock.Now),
		resultBytes: budget.New(cfg.ResultBytes, deps.Local),
		processing:  budget.New(cfg.Processing, deps.Local),
		deadLetters: budget.New(cfg.DeadLetters, deps.Local),
	}
	e.rules = &rule.Evaluator{Now: deps.Clock.Now, Budget: e.processing}
	return e
}

// Handle handles a message. The end of the process does not cancel its context, but one GET and one
// publish limit its duration.
func (e *Engine) Handle(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
	a := &attempt{trigger: e.decode(d)}
	ctx, a.span = e.deps.Tracer.Consume(ctx, "fetch", pipeline.FetcherConsumer, tracing.MessageOf(d))
	d.SetTrace(a.span.SpanContext())
	return e.run(ctx, a).disposition()
}

// Observe counts dead letters of messages that could not be handled.
func (e *Engine) Observe(_ *pipeline.Delivery, kept pipeline.Disposition) {
	if kept.IsDeadLetter() {
		e.deps.Metrics.deadLetters.WithLabelValues(failure.Reason(pipeline.FailureClass(kept.Err()))).Inc()
	}
}

// run makes the attempt of a delivered or claimed message, carries out the decision, and reports the outcome.
func (e *Engine) run(ctx context.Context, a *attempt) decision {
	e.deps.Metrics.inFlight.Inc()
	defer e.deps.Metrics.inFlight.Dec()
	defer func() { a.ticket.End() }()
	d := e.tryAndConclude(ctx, a)
	if a.claim != nil && d.outcome == outcomePostponed {
		e.giveBack(ctx, *a.claim, d.wait)
	}
	e.reportOutcome(a, d)
	a.setSpanOutcome(d)
	return d
}

// tryAndConclude gives up on a claimed key that panics. pipeline.Consume recovers the panics of delivered messages.
func (e *Engine) tryAndConclude(ctx context.Context, a *attempt) (d decision) {
	if a.claim != nil {
		defer func() {
			if value := recover(); value != nil {
				e.deps.Log.Error().Str("panic", fmt.Sprint(value)).Bytes("stack", debug.Stack()).
					Msg("handling of a queued key panicked")
				d = e.conclude(ctx, a, failed(poisoned()))
			}
		}()
	}
	return e.conclude(ctx, a, e.try(ctx, a))
}

// conclude decides on the end of an attempt, and carries the decision out.
func (e *Engine) conclude(ctx context.Context, a *attempt, end attemptEnd) decision {
	d := e.cfg.decide(&a.trigger, end, e.deps.Clock.Now(), e.deps.Random())
	if len(d.deadLetter.GetSnippet()) > 0 && !e.isSigned(a.want) {
		d.deadLetter.Snippet = nil // who forged the want must not see the response
	}
	return e.carryOut(ctx, a, d)
}
