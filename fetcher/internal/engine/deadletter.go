package engine

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// publishDeadLetter publishes the dead letter of a trigger.
func (e *Engine) publishDeadLetter(ctx context.Context, t *trigger, a followUp) error {
	deadLetter := &v1.DeadLetter{
		Want:         slim(t.want),
		Failure:      t.describe(a),
		Sequence:     t.sequence,
		LastFailedAt: timestamppb.New(a.at),
		Snippet:      a.Snippet[:min(len(a.Snippet), get.MaxSnippet)],
		ReplayOf:     t.replayOf,
		Traceparent:  pipeline.Traceparent(t.span.SpanContext()),
	}
	id := strconv.FormatInt(t.want.GetEpoch(), 10) + "." + strconv.FormatUint(t.sequence, 10) + ".dead"
	return e.sendDeadLetter(ctx, t.key, deadLetter, id)
}

// undecodable is the failure of a message that cannot be handled.
func undecodable(why error) failure {
	return failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_MALFORMED},
		text:  "message cannot be decoded",
		cause: why,
	}
}

// refusedByBroker is the failure of a message that leads to another one that
// the broker does not take.
func refusedByBroker(why error) failure {
	return failure{
		Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_MALFORMED},
		text:  "broker refuses what the message leads to",
		cause: why,
	}
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
