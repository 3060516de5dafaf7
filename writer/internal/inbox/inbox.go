package inbox

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/logsample"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
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
	Add(ctx context.Context, ref apply.Ref, item judge.Item) <-chan apply.Outcome
}

// Gate knows whether work may begin. It waits a while if not.
type Gate interface {
	Pass(ctx context.Context) bool
}

// Letters keeps what could not be done.
type Letters interface {
	PublishDeadLetter(ctx context.Context, key pipeline.Key, d *v1.DeadLetter, id string) error
}

// Inbox handles messages.
type Inbox struct {
	reader  Reader
	gate    Gate
	queue   Queue
	letters Letters
	tracer  *tracing.Tracer
	log     zerolog.Logger
	lines   *logsample.Log
	metrics *Metrics
}

// New returns an inbox that hands what it reads to a queue while the gate is
// open. A nil tracer makes no spans.
func New(r Reader, g Gate, q Queue, l Letters, m *Metrics, tracer *tracing.Tracer, log zerolog.Logger) *Inbox {
	return &Inbox{reader: r, gate: g, queue: q, letters: l, tracer: tracer, log: log, lines: logsample.New(log), metrics: m}
}

// Handle reads a message, waits for what becomes of it, and settles it. Each
// message has a span of its own, also when several are applied together: each
// belongs to another trace.
func (b *Inbox) Handle(ctx context.Context, m jetstream.Msg) {
	b.metrics.inFlight.Inc()
	defer b.metrics.inFlight.Dec()
	ctx, span := b.tracer.Consume(ctx, "apply", pipeline.WriterConsumer, m)
	defer span.End()
	item, err := b.reader.Read(m.Subject(), m.Data())
	item.Trace = span.SpanContext()
	if err != nil {
		refused(span, err)
		b.putAside(ctx, m, item, err)
		return
	}
	if !b.gate.Pass(ctx) {
		b.settle(m, apply.Outcome{Retry: apply.Soon})
		tell(span, apply.Outcome{Retry: apply.Soon})
		return
	}
	done := b.queue.Add(ctx, apply.Ref{Namespace: item.Key.Namespace, Name: item.Key.Name}, item)
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		select {
		case outcome := <-done:
			b.settle(m, outcome)
			tell(span, outcome)
			return
		case <-alive.C:
			_ = m.InProgress() // without it the message only comes twice
		}
	}
}

// settle acknowledges a message, or has it come back.
func (b *Inbox) settle(m jetstream.Msg, o apply.Outcome) {
	switch o.Retry {
	case apply.Done:
		b.ack(m)
	case apply.Soon:
		b.back(m, max(o.After, delay(deliveries(m), maxSoon)))
	default:
		b.back(m, delay(deliveries(m), maxLater))
	}
}

func (b *Inbox) ack(m jetstream.Msg) {
	b.metrics.settled.WithLabelValues(acked).Inc()
	if err := m.Ack(); err != nil {
		b.log.Debug().Err(err).Msg("message was not acknowledged and comes again")
	}
}

func (b *Inbox) back(m jetstream.Msg, after time.Duration) {
	b.metrics.settled.WithLabelValues(givenBack).Inc()
	if err := m.NakWithDelay(after); err != nil {
		b.log.Debug().Err(err).Msg("message was not given back and comes when its time is out")
	}
}

// putAside keeps a message that cannot be applied among the failures.
func (b *Inbox) putAside(ctx context.Context, m jetstream.Msg, item judge.Item, why error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := b.letters.PublishDeadLetter(ctx, item.Key, letter(m, item, why), letterID(m)); err != nil {
		b.lines.Line(zerolog.WarnLevel, "not_put_aside").Err(err).Msg("message that cannot be applied was not put aside; trying again")
		b.back(m, delay(deliveries(m), maxSoon))
		return
	}
	if line := b.lines.Line(zerolog.WarnLevel, "put_aside"); line != nil {
		tracing.Stamp(line, item.Trace).Err(why).Str("subject", m.Subject()).Msg("message cannot be applied and was put aside")
	}
	b.metrics.settled.WithLabelValues(putAside).Inc()
	if err := m.Ack(); err != nil {
		b.log.Debug().Err(err).Msg("message was not acknowledged and comes again")
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
