package engine

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// deadLetterTimeout is the time limit of the only attempt to publish a dead letter. The history
	// of failures must not delay fetches.
	deadLetterTimeout = 2 * time.Second
	// deadLetterPause is how long dead letters are dropped after a failed attempt.
	deadLetterPause = 5 * time.Second
)

// publishDeadLetter reports whether the stream took the dead letter of a trigger.
func (e *Engine) publishDeadLetter(ctx context.Context, t *trigger, a followUp) bool {
	if e.backpressure.refusedSince(pipeline.Failures, e.deps.Clock.Now().Add(-deadLetterPause)) {
		return false
	}
	deadLetter := &v1.DeadLetter{
		Want:         slim(t.want),
		Failure:      t.describe(a),
		Sequence:     t.sequence,
		LastFailedAt: timestamppb.New(a.at),
		Snippet:      a.Snippet[:min(len(a.Snippet), get.MaxSnippet)],
		ReplayOf:     t.past.GetReplayOf(),
		Traceparent:  pipeline.Traceparent(t.span.SpanContext()),
	}
	id := strconv.FormatInt(t.want.GetEpoch(), 10) + "." + strconv.FormatUint(t.sequence, 10) + ".dead"
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	if err := e.deps.Client.PublishDeadLetter(ctx, t.key, deadLetter, id); err != nil {
		e.backpressure.refused(pipeline.Failures, err, e.deps.Clock.Now())
		e.deps.Metrics.observePushback(err)
		return false
	}
	e.backpressure.accepted(pipeline.Failures, e.deps.Clock.Now())
	e.deps.Metrics.deadLetters.WithLabelValues(pipeline.Reason(a.Class)).Inc()
	return true
}

// unhandled is the failure of a message that cannot be decoded, or whose outcome the broker refuses.
func unhandled(text string, why error) failure {
	return failure{Error: get.Error{Class: v1.FailureClass_FAILURE_CLASS_MALFORMED}, text: text, cause: why}
}
