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

// maxBackoff is the maximum delay before a message is retried because the API server was unavailable.
const maxBackoff = 8 * time.Second

// Config configures an Inbox.
type Config struct {
	// Protected has the namespaces that are never served.
	Protected []string
	// Messages and Bytes limit the messages in flight.
	Messages, Bytes int
}

// Deps are the dependencies of an Inbox.
type Deps struct {
	Breaker *breaker.Breaker
	Queue   *batch.Queue[types.NamespacedName, plan.Item, apply.Outcome]
	Metrics *Metrics
	// Tracer makes a span for each message. Nil means none.
	Tracer *tracing.Tracer
	// Log gets a line for each dead letter.
	Log zerolog.Logger
}

// Inbox handles messages.
type Inbox struct {
	config Config
	deps   Deps
	lines  *logsample.Log
	slots  *slots
}

// New returns an inbox that adds work to the queue while the breaker lets it pass.
func New(c Config, d Deps) *Inbox {
	return &Inbox{config: c, deps: d, lines: logsample.New(d.Log), slots: newSlots(c.Messages, c.Bytes)}
}

// Handle applies a message. Each message has its own span, even in a batch, because each belongs to
// a different trace.
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
	case b.slots.acquire(item.Key.Namespace, len(d.Data())):
		outcome = <-b.deps.Queue.Add(ctx, types.NamespacedName{Namespace: item.Key.Namespace, Name: item.Key.Name}, item)
		b.slots.release(item.Key.Namespace, len(d.Data()), time.Since(began))
	default: // the slow namespace has used its slots
		outcome.After = slow + rand.N(slow)
	}
	disposition := dispose(d, outcome)
	setSpanOutcome(span, outcome, disposition)
	return disposition
}

// dispose returns the disposition of a message. It is retried only if the API server was unavailable, or if its
// slow namespace has used its slots. Meanwhile it occupies a slot of the consumer, which is intended
// back-pressure. All others are acknowledged, and the watcher publishes missing keys again.
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

// Observe counts dispositions, and logs dead letters and panics.
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
	if with.IsDeadLetter() {
		line.Msg("message cannot be applied and became a dead letter")
		return
	}
	line.Bytes("stack", with.PanicStack()).Msg("message was not handled, or its dead letter was not published, retrying")
}
