package engine

import (
	"context"
	"errors"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// replicaLag is the delay of a trigger whose want a lagging replica does not have yet.
const replicaLag = time.Second

// lookups is the number of failed lookups after which a want counts as purged. Fewer may be due to a
// lagging replica.
const lookups = 3

// confirm reads the want of a due, and returns an ending if there is nothing to fetch.
func (e *Engine) confirm(ctx context.Context, t *trigger) ending {
	if t.kind != pipeline.KindDue {
		return ending{}
	}
	want, sequence, err := e.lastWant(ctx, t.key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage) && t.deliveries < lookups:
		return ending{outcome: postponed, wait: replicaLag}
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrMalformed):
		// A malformed want has its own dead letter.
		return ending{outcome: superseded}
	case err != nil:
		return afterPublishError(err)
	case sequence < t.wantSequence:
		return ending{outcome: postponed, wait: replicaLag}
	case sequence > t.wantSequence || want == nil:
		return ending{outcome: superseded}
	}
	t.want, t.readFirst = want, !t.untried()
	if !t.readFirst {
		t.cause = want.GetCause()
	}
	return ending{}
}

// current returns ErrSuperseded if the want of a trigger has been replaced. Only a later message
// proves that, because a replica may lag.
func (e *Engine) current(ctx context.Context, t *trigger) error {
	_, sequence, err := e.lastWant(ctx, t.key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage):
		return nil
	case err != nil && !errors.Is(err, pipeline.ErrMalformed):
		return err
	case sequence > t.wantSequence:
		return pipeline.ErrSuperseded
	}
	return nil
}

func (e *Engine) lastWant(ctx context.Context, key pipeline.Key) (want *v1.Want, sequence uint64, err error) {
	err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
		want, sequence, err = e.deps.Client.LastWant(ctx, key)
		return err
	})
	return want, sequence, err
}
