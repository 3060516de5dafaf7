package inbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/logsample"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/batch"
	"github.com/kv8s/curl-me-that/writer/internal/breaker"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxBackoff bounds the delay before a message comes back that met an API server
// that is unavailable.
const maxBackoff = 8 * time.Second

// Config of an Inbox.
type Config struct {
	// Protected namespaces are never written to.
	Protected []string
	// Messages and Bytes are how many are handled at a time.
	Messages, Bytes int
}

// Deps is what an Inbox works with.
type Deps struct {
	// Breaker holds work back while the API server is unavailable.
	Breaker *breaker.Breaker
	// Queue applies what was read.
	Queue *batch.Queue[types.NamespacedName, plan.Item, apply.Outcome]
	// Metrics are moved by what is taken.
	Metrics *Metrics
	// Tracer makes a span for each message; nil: none.
	Tracer *tracing.Tracer
	// Log takes a line for each dead letter.
	Log zerolog.Logger
}

// Inbox handles messages.
type Inbox struct {
	config Config
	deps   Deps
	lines  *logsample.Log
	places *places
}

// New returns an inbox that hands what it reads to a queue while the breaker
// lets work pass.
func New(c Config, d Deps) *Inbox {
	return &Inbox{config: c, deps: d, lines: logsample.New(d.Log), places: newPlaces(c.Messages, c.Bytes)}
}

// Handle reads a message and returns what becomes of it once it is applied. Each
// message has a span of its own, also when several are applied together: each
// belongs to another trace.
func (b *Inbox) Handle(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
	b.deps.Metrics.inFlight.Inc()
	defer b.deps.Metrics.inFlight.Dec()
	ctx, span := b.deps.Tracer.Consume(ctx, "apply", pipeline.WriterConsumer, d)
	defer span.End()
	d.SetTrace(span.SpanContext())
	item, err := b.config.read(d.Subject(), d.Data())
	item.Trace = span.SpanContext()
	if err != nil {
		setSpanDeadLetter(span, err)
		return pipeline.DeadLetter(err)
	}
	outcome := apply.Outcome{Unavailable: true}
	switch began := time.Now(); {
	case !b.deps.Breaker.Pass(d.Draining()):
	case b.places.take(item.Key.Namespace, len(d.Data())):
		outcome = <-b.deps.Queue.Add(ctx, types.NamespacedName{Namespace: item.Key.Namespace, Name: item.Key.Name}, item)
		b.places.leave(item.Key.Namespace, len(d.Data()), time.Since(began))
	default: // others come first
		outcome.After = slow + rand.N(slow)
	}
	disposition := dispose(d, outcome)
	setSpanOutcome(span, outcome, disposition)
	return disposition
}

// dispose returns what becomes of a message. Only one that met an API server
// that is unavailable comes back, and holds one of the consumer's slots
// meanwhile: that is the wanted back-pressure. What is refused or put off for
// reasons of its own object or namespace is acknowledged, and wanted again by the
// watcher.
func dispose(d *pipeline.Delivery, o apply.Outcome) pipeline.Disposition {
	if !o.Unavailable {
		return pipeline.Ack()
	}
	select {
	case <-d.Draining():
		return pipeline.GiveBack()
	default:
	}
	return pipeline.Retry(max(o.After, d.Backoff(maxBackoff)))
}

// Observe counts what became of a message, and logs dead letters and panics.
func (b *Inbox) Observe(d *pipeline.Delivery, with pipeline.Disposition) {
	b.deps.Metrics.messages.WithLabelValues(with.String()).Inc()
	if with.Err() == nil {
		return
	}
	line := b.lines.Line(zerolog.WarnLevel, with.String())
	if line == nil {
		return
	}
	line = line.Err(with.Err()).Str("subject", d.Subject())
	if with.String() == pipeline.DeadLetter(nil).String() {
		line.Msg("message cannot be applied and became a dead letter")
		return
	}
	line.Bytes("stack", pipeline.PanicStack(with.Err())).Msg("message was not handled, or its dead letter was not published; trying again")
}
