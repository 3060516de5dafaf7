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
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxBackoff is the maximum delay before a message is retried because the API server was unavailable.
const maxBackoff = 8 * time.Second

// Wait waits, for a moment, until the history has the versions of all results.
func (a *Applier) Wait() { a.history.wait() }

// Handle applies a message. Each message has its own span, even in a batch, because each belongs to
// a different trace.
func (a *Applier) Handle(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
	a.deps.Metrics.inFlight.Inc()
	defer a.deps.Metrics.inFlight.Dec()
	ctx, span := a.deps.Tracer.Consume(ctx, "apply", pipeline.WriterConsumer, tracing.MessageOf(d))
	defer span.End()
	d.SetTrace(span.SpanContext())
	item, err := parseMessage(d.Subject(), d.Data(), a.deps.Protected)
	item.Trace = span.SpanContext()
	var applied Applied
	if err != nil {
		disposition := pipeline.DeadLetter(err)
		setSpan(span, applied, disposition)
		return disposition
	}
	if a.deps.Breaker.Pass(d.Draining()) {
		done, fits := a.queue.Do(ctx, item, len(d.Data()))
		applied = done
		if !fits {
			applied = Applied{After: slowAfter + rand.N(slowAfter)}
		}
	}
	disposition := dispose(d, item, applied)
	setSpan(span, applied, disposition)
	return disposition
}

// errPage is the reason for the dead letter of a page, with the start of the page unless it was fetched with a
// credential.
func errPage(content *v1.Content) error {
	err := &pipeline.ClassError{
		Class: failure.ContentRejected,
		Err:   errors.New("an HTML page would replace a value that is none"),
	}
	if body := content.GetBody(); !content.GetCredential() {
		err.Snippet = body[:min(len(body), pipeline.MaxSnippet)]
	}
	return err
}

// dispose returns the disposition of a message. It is retried only if the API server was unavailable, or if its
// slow namespace has used its slots. Meanwhile it occupies a slot of the consumer, which is intended
// back-pressure. All others are acknowledged, and the watcher publishes missing keys again.
func dispose(d *pipeline.Delivery, item plan.Item, a Applied) pipeline.Disposition {
	switch {
	case a.NewPage:
		return pipeline.DeadLetter(errPage(item.Result.GetContent()))
	case a.Outcome != "":
		return pipeline.Ack()
	}
	select {
	case <-d.Draining():
		return pipeline.GiveBack()
	default:
	}
	return pipeline.Retry(max(a.After, d.Backoff(maxBackoff)))
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

// setSpan records in a span what became of a message.
func setSpan(span trace.Span, a Applied, d pipeline.Disposition) {
	if !span.IsRecording() {
		return
	}
	if a.Together > 1 {
		span.SetAttributes(semconv.MessagingBatchMessageCount(a.Together))
	}
	if a.Outcome != "" {
		span.SetAttributes(tracing.Outcome.String(string(a.Outcome)))
		return
	}
	reason := d.String()
	if d.IsDeadLetter() {
		reason = failure.Reason(pipeline.FailureClass(d.Err()))
	}
	span.SetAttributes(tracing.Disposition.String(d.String()))
	tracing.Fail(span, reason)
}
