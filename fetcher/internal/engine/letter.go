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

// keep publishes the dead letter of a trigger.
func (e *Engine) keep(ctx context.Context, t *trigger, f failure, now time.Time) error {
	letter := &v1.DeadLetter{
		Want:         slim(t.want),
		Failure:      e.describe(t, f, now, true),
		Sequence:     t.sequence,
		LastFailedAt: timestamppb.New(now),
		Snippet:      f.Snippet[:min(len(f.Snippet), get.MaxSnippet)],
		ReplayOf:     t.replayOf,
		Traceparent:  pipeline.Traceparent(t.span.SpanContext()),
	}
	id := strconv.FormatInt(t.want.GetEpoch(), 10) + "." + strconv.FormatUint(t.sequence, 10) + ".dead"
	return e.send(ctx, t.key, letter, id)
}

// bury puts a message aside that cannot be handled.
func (e *Engine) bury(ctx context.Context, t *trigger, why error) end {
	now := e.deps.Now()
	f := failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_MALFORMED},
		said:  "message cannot be decoded",
	}
	if errors.Is(why, errRefused) {
		f.said = "broker refuses what the message leads to"
	}
	letter := &v1.DeadLetter{
		Failure:      &v1.Failure{Class: f.Class, Attempts: 1, FirstFailedAt: timestamppb.New(now), GaveUp: true},
		Sequence:     t.sequence,
		LastFailedAt: timestamppb.New(now),
		Subject:      t.message.Subject(),
		Payload:      t.message.Data()[:min(len(t.message.Data()), maxPayload)],
		Traceparent:  pipeline.Traceparent(t.span.SpanContext()),
	}
	// The time stands for the epoch, which only the message itself could tell.
	id := strconv.FormatInt(t.stored.UnixNano(), 10) + "." + strconv.FormatUint(t.sequence, 10) + ".malformed"
	if err := e.send(ctx, t.key, letter, id); err != nil && !errors.Is(err, errRefused) {
		return end{outcome: postponed, wait: lag}
	}
	return end{outcome: buried, failure: f}
}

func (e *Engine) send(ctx context.Context, key pipeline.Key, letter *v1.DeadLetter, id string) error {
	err := e.persist(ctx, pipeline.Failures, func(ctx context.Context) error {
		return e.deps.Client.PublishDeadLetter(ctx, key, letter, id)
	})
	if err == nil {
		e.deps.Metrics.deadLetters.WithLabelValues(pipeline.Reason(letter.GetFailure().GetClass())).Inc()
	}
	return err
}
