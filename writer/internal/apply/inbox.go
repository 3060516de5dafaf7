package apply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/status"
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

// maxSnippet is the maximum length of the start of a page in its dead letter.
const maxSnippet = 1 << 10

// errPage is the reason for the dead letter of a page, with the start of the page unless it was fetched with a
// credential.
func errPage(content *v1.Content) error {
	err := &pipeline.ClassError{
		Class: failure.ContentRejected,
		Err:   errors.New("an HTML page would replace a value that is none"),
	}
	if body := content.GetBody(); !content.GetCredential() {
		err.Snippet = body[:min(len(body), maxSnippet)]
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

// errMalformed means that a message cannot be applied.
var errMalformed = errors.New("malformed result")

// parseMessage parses a message. Subject and payload must agree and contain valid Kubernetes names, because
// the names become part of a request path and the key becomes part of a patch. On error, the item has the
// fields that could be read.
func parseMessage(subject string, data []byte, protected []string) (plan.Item, error) {
	kind, key, err := pipeline.ParseSubject(subject)
	if err != nil {
		return plan.Item{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	result, err := pipeline.DecodeResult(key, data)
	if err != nil {
		return plan.Item{Key: key}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	item := plan.NewItem(result)
	// Only the watcher may publish on that subject, because it limits how many keys are removed at once.
	if item.OfObject() != (kind == pipeline.KindSync) || item.OfObject() && key.Key != status.ObjectKey {
		return item, fmt.Errorf("%w: only the watcher may request to sync an object", errMalformed)
	}
	if err := check(key, result); err != nil {
		return item, err
	}
	if annotation.Protects(protected, key.Namespace, key.Name) {
		return item, &pipeline.ClassError{
			Class: failure.WriteFailed,
			Err:   fmt.Errorf("protected object: ConfigMap %s/%s", key.Namespace, key.Name),
		}
	}
	return item, nil
}

func check(key pipeline.Key, r *v1.Result) error {
	want := r.GetWant()
	switch {
	case len(validation.IsDNS1123Label(key.Namespace)) > 0:
		return fmt.Errorf("%w: illegal namespace", errMalformed)
	case len(validation.IsDNS1123Subdomain(key.Name)) > 0:
		return fmt.Errorf("%w: illegal name", errMalformed)
	case want.GetUid() == "":
		return fmt.Errorf("%w: no uid", errMalformed)
	case r.GetSync() != nil: // it has neither URL nor fence
		return checkTimes(r)
	case len(validation.IsConfigMapKey(key.Key)) > 0:
		return fmt.Errorf("%w: illegal key", errMalformed)
	case r.GetSequence() == 0:
		return fmt.Errorf("%w: no sequence", errMalformed)
	case want.GetEpoch() < 0 || want.GetEpoch() > status.MaxEpoch: // it would make the status unreadable
		return fmt.Errorf("%w: epoch out of range", errMalformed)
	case want.GetUrl() == "":
		return fmt.Errorf("%w: no url", errMalformed)
	}
	switch outcome := r.GetOutcome().(type) {
	case nil:
		return fmt.Errorf("%w: no outcome", errMalformed)
	case *v1.Result_Content:
		required := want.GetSha256()
		if want.GetRefresh().AsDuration() > 0 { // other content is only offered
			required = ""
		}
		if err := checkDigest(outcome.Content, required); err != nil {
			return err
		}
	}
	return checkTimes(r)
}

// checkTimes rejects times that JSON cannot express. A single one would make the status of all keys
// unwritable.
func checkTimes(r *v1.Result) error {
	for _, at := range []*timestamppb.Timestamp{r.GetObservedAt(), r.GetFailure().GetFirstFailedAt(), r.GetFailure().
		GetNextAt()} {
		if at != nil && !at.IsValid() {
			return fmt.Errorf("%w: illegal time", errMalformed)
		}
	}
	return nil
}

// checkDigest compares a body with the digest in the message and with the digest that the annotation
// requires.
func checkDigest(c *v1.Content, required string) error {
	var problem string
	switch digest := pipeline.Digest(c.GetBody()); {
	case digest != c.GetSha256():
		problem = "body does not match the digest in the message"
	case required != "" && digest != required:
		problem = "body does not match the digest that the annotation requires"
	default:
		return nil
	}
	return &pipeline.ClassError{Class: failure.DigestMismatch, Err: errors.New(problem)}
}
