package apply

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// maxBackoff is the maximum delay before a message is retried because the API server was unavailable.
const maxBackoff = 8 * time.Second

// Wait returns when all results are applied.
func (a *Applier) Wait() { a.queue.Wait() }

// Handle applies a message. Each message has its own span, even in a batch, because each belongs to
// a different trace.
func (a *Applier) Handle(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
	a.deps.Metrics.inFlight.Inc()
	defer a.deps.Metrics.inFlight.Dec()
	ctx, span := a.deps.Tracer.Consume(ctx, "apply", pipeline.WriterConsumer, tracing.Of(d))
	defer span.End()
	d.SetTrace(span.SpanContext())
	item, err := read(d.Subject(), d.Data(), a.config.Protected)
	item.Trace = span.SpanContext()
	if err != nil {
		setSpanDeadLetter(span, err)
		return pipeline.DeadLetter(err)
	}
	write := Write{Unavailable: true}
	if a.deps.Breaker.Pass(d.Draining()) {
		done, fits := a.queue.Do(ctx, item, len(d.Data()))
		if write = done; !fits {
			write = Write{Unavailable: true, After: slow + rand.N(slow)}
		}
	}
	disposition := dispose(d, write)
	setSpanWrite(span, write, disposition)
	return disposition
}

// errPage is the reason for the dead letter of a page.
var errPage = &pipeline.ClassError{
	Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED,
	Err:   errors.New("an HTML page would replace a value that is none"),
}

// dispose returns the disposition of a message. It is retried only if the API server was unavailable, or if its
// slow namespace has used its slots. Meanwhile it occupies a slot of the consumer, which is intended
// back-pressure. All others are acknowledged, and the watcher publishes missing keys again.
func dispose(d *pipeline.Delivery, w Write) pipeline.Disposition {
	switch {
	case w.Rejected:
		return pipeline.DeadLetter(errPage)
	case !w.Unavailable:
		return pipeline.Ack()
	}
	select {
	case <-d.Draining():
		return pipeline.GiveBack()
	default:
	}
	return pipeline.Retry(max(w.After, d.Backoff(maxBackoff)))
}

// Observe counts dispositions, and logs dead letters and panics.
func (a *Applier) Observe(d *pipeline.Delivery, with pipeline.Disposition) {
	a.deps.Metrics.messages.WithLabelValues(with.String()).Inc()
	if with.Err() == nil {
		return
	}
	line := a.lines.Line(zerolog.WarnLevel, with.String())
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

// setSpanWrite records in a span what became of a result.
func setSpanWrite(span trace.Span, w Write, d pipeline.Disposition) {
	if !span.IsRecording() {
		return
	}
	if w.Together > 1 {
		span.SetAttributes(semconv.MessagingBatchMessageCount(w.Together))
	}
	if w.Unavailable {
		span.SetAttributes(tracing.Disposition.String(d.String()))
		tracing.Fail(span, d.String())
		return
	}
	span.SetAttributes(tracing.Verdict.String(string(w.Verdict)))
}

// setSpanDeadLetter records a dead letter in a span.
func setSpanDeadLetter(span trace.Span, why error) {
	if span.IsRecording() {
		span.SetAttributes(tracing.Disposition.String(pipeline.DeadLetter(why).String()))
		tracing.Fail(span, pipeline.Reason(pipeline.FailureClass(why)))
	}
}
