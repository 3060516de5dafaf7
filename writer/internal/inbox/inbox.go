package inbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/logsample"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	// heartbeat is how often the server is told that a message is in work.
	heartbeat = pipeline.AckWait / 3
	// publishTimeout bounds the publishing of a dead letter.
	publishTimeout = 5 * time.Second
	// retryFirst is the first delay before a message comes back; it doubles
	// with each delivery up to maxSoon or maxLater.
	retryFirst = time.Second
	maxSoon    = 8 * time.Second
	maxLater   = 2 * time.Minute
)

// Queue takes items for a ConfigMap and returns where their outcome will come.
type Queue interface {
	Add(ctx context.Context, ref types.NamespacedName, item plan.Item) <-chan apply.Outcome
}

// Breaker reports whether work may begin. It waits for a while if not.
type Breaker interface {
	Pass(ctx context.Context) bool
}

// DeadLetters keeps what could not be done.
type DeadLetters interface {
	PublishDeadLetter(ctx context.Context, key pipeline.Key, d *v1.DeadLetter, id string) error
}

// Deps is what an Inbox works with.
type Deps struct {
	// Breaker holds work back while the API server is unavailable.
	Breaker Breaker
	// Queue applies what was read.
	Queue Queue
	// DeadLetters keeps what cannot be applied.
	DeadLetters DeadLetters
	// Metrics are moved by what is taken.
	Metrics *Metrics
	// Tracer makes a span for each message; nil: none.
	Tracer *tracing.Tracer
	// Log takes a line for each dead letter.
	Log zerolog.Logger
}

// Inbox handles messages.
type Inbox struct {
	deps
	reader Reader
	lines  *logsample.Log
}

type deps = Deps

// New returns an inbox that hands what it reads to a queue while the breaker
// lets work pass.
func New(r Reader, d Deps) *Inbox { return &Inbox{deps: d, reader: r, lines: logsample.New(d.Log)} }

// Handle reads a message, waits for what becomes of it, and acknowledges it. Each
// message has a span of its own, also when several are applied together: each
// belongs to another trace.
func (b *Inbox) Handle(ctx context.Context, m jetstream.Msg) {
	b.Metrics.inFlight.Inc()
	defer b.Metrics.inFlight.Dec()
	ctx, span := b.Tracer.Consume(ctx, "apply", pipeline.WriterConsumer, m)
	defer span.End()
	item, err := b.reader.Read(m.Subject(), m.Data())
	item.Trace = span.SpanContext()
	if err != nil {
		setSpanDeadLetter(span, err)
		b.deadLetter(ctx, m, item, err)
		return
	}
	if !b.Breaker.Pass(ctx) {
		b.finish(m, apply.Outcome{Retry: apply.Soon})
		setSpanOutcome(span, apply.Outcome{Retry: apply.Soon})
		return
	}
	done := b.Queue.Add(ctx, types.NamespacedName{Namespace: item.Key.Namespace, Name: item.Key.Name}, item)
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		select {
		case outcome := <-done:
			b.finish(m, outcome)
			setSpanOutcome(span, outcome)
			return
		case <-alive.C:
			_ = m.InProgress() // without it the message only comes twice
		}
	}
}

// finish acknowledges a message, or returns it.
func (b *Inbox) finish(m jetstream.Msg, o apply.Outcome) {
	switch o.Retry {
	case apply.Done:
		b.ack(m)
	case apply.Soon:
		b.nak(m, max(o.After, delay(deliveries(m), maxSoon)))
	default:
		b.nak(m, delay(deliveries(m), maxLater))
	}
}

func (b *Inbox) ack(m jetstream.Msg) {
	b.Metrics.messages.WithLabelValues(ack).Inc()
	if err := m.Ack(); err != nil {
		b.Log.Debug().Err(err).Msg("message was not acknowledged and comes again")
	}
}

func (b *Inbox) nak(m jetstream.Msg, after time.Duration) {
	b.Metrics.messages.WithLabelValues(nak).Inc()
	if err := m.NakWithDelay(after); err != nil {
		b.Log.Debug().Err(err).Msg("message was not returned and comes again when its time is out")
	}
}

// deadLetter keeps a message that cannot be applied among the failures.
func (b *Inbox) deadLetter(ctx context.Context, m jetstream.Msg, item plan.Item, why error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := b.DeadLetters.PublishDeadLetter(ctx, item.Key, newDeadLetter(m, item, why), deadLetterID(m)); err != nil {
		b.lines.Line(zerolog.WarnLevel, "dead_letter_failed").Err(err).Msg("message cannot be applied, and its dead letter was not kept; trying again")
		b.nak(m, delay(deliveries(m), maxSoon))
		return
	}
	if line := b.lines.Line(zerolog.WarnLevel, "dead_letter"); line != nil {
		tracing.Stamp(line, item.Trace).Err(why).Str("subject", m.Subject()).Msg("message cannot be applied and is kept as a dead letter")
	}
	b.Metrics.messages.WithLabelValues(deadLetter).Inc()
	if err := m.Ack(); err != nil {
		b.Log.Debug().Err(err).Msg("message was not acknowledged and comes again")
	}
}

func deliveries(m jetstream.Msg) uint64 {
	if meta, err := m.Metadata(); err == nil {
		return meta.NumDelivered
	}
	return 1
}

// delay returns how long a message stays away after its n-th delivery, with
// jitter of a fifth either way.
func delay(n uint64, longest time.Duration) time.Duration {
	d := longest
	if n < 16 {
		d = min(retryFirst<<(max(n, 1)-1), longest)
	}
	return d - d/5 + rand.N(2*d/5)
}
