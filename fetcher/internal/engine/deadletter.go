package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// maxPayload bounds what a dead letter keeps of a message, in bytes.
const maxPayload = 64 << 10

// publishDeadLetter publishes the dead letter of a trigger.
func (e *Engine) publishDeadLetter(ctx context.Context, t *trigger, f failure, now time.Time) error {
	deadLetter := &v1.DeadLetter{
		Want:         slim(t.want),
		Failure:      e.describe(t, f, now, true),
		Sequence:     t.sequence,
		LastFailedAt: timestamppb.New(now),
		Snippet:      f.Snippet[:min(len(f.Snippet), get.MaxSnippet)],
		ReplayOf:     t.replayOf,
		Traceparent:  pipeline.Traceparent(t.span.SpanContext()),
	}
	id := strconv.FormatInt(t.want.GetEpoch(), 10) + "." + strconv.FormatUint(t.sequence, 10) + ".dead"
	return e.sendDeadLetter(ctx, t.key, deadLetter, id)
}

// deadLetterMalformed publishes the dead letter of a message that cannot be handled.
func (e *Engine) deadLetterMalformed(ctx context.Context, t *trigger, why error) result {
	now := e.deps.Now()
	f := failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_MALFORMED},
		text:  "message cannot be decoded",
	}
	if errors.Is(why, errRefused) {
		f.text = "broker refuses what the message leads to"
	}
	deadLetter := &v1.DeadLetter{
		Failure:      &v1.Failure{Class: f.Class, Attempts: 1, FirstFailedAt: timestamppb.New(now), GaveUp: true},
		Sequence:     t.sequence,
		LastFailedAt: timestamppb.New(now),
		Subject:      t.message.Subject(),
		Payload:      t.message.Data()[:min(len(t.message.Data()), maxPayload)],
		Traceparent:  pipeline.Traceparent(t.span.SpanContext()),
	}
	// The time stands for the epoch, which only the payload has.
	id := strconv.FormatInt(t.stored.UnixNano(), 10) + "." + strconv.FormatUint(t.sequence, 10) + ".malformed"
	if err := e.sendDeadLetter(ctx, t.key, deadLetter, id); err != nil && !errors.Is(err, errRefused) {
		return result{outcome: postponed, wait: replicaLag}
	}
	return result{outcome: malformed, failure: f}
}

func (e *Engine) sendDeadLetter(ctx context.Context, key pipeline.Key, deadLetter *v1.DeadLetter, id string) error {
	err := e.untilTaken(ctx, pipeline.Failures, func(ctx context.Context) error {
		return e.deps.Client.PublishDeadLetter(ctx, key, deadLetter, id)
	})
	if err == nil {
		e.deps.Metrics.deadLetters.WithLabelValues(pipeline.Reason(deadLetter.GetFailure().GetClass())).Inc()
	}
	return err
}
