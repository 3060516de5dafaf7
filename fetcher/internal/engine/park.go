package engine

import (
	"context"
	"errors"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Causes why an attempt is put off, besides those of package throttle.
const (
	sharedCallSlow throttle.Cause = "shared_call_slow" // a GET of the same is under way and takes long
	namespaceBytes throttle.Cause = "namespace_bytes"  // the namespace has published all the bytes of its budget
)

// parkPause is after what time a message comes back that could not wait for a GET of
// the same. They come at about the same time, to find its outcome.
const parkPause = time.Second

// parkCauses are the values of the metric's label.
func parkCauses() []throttle.Cause {
	return []throttle.Cause{sharedCallSlow, namespaceBytes, throttle.HostBusy, throttle.HostSlowed, throttle.NamespaceShare}
}

// waitsFor is a cause as a timer carries it.
func waitsFor(c throttle.Cause) v1.WaitsFor {
	switch c {
	case sharedCallSlow:
		return v1.WaitsFor_WAITS_FOR_SHARED_GET
	case namespaceBytes:
		return v1.WaitsFor_WAITS_FOR_NAMESPACE_BYTES
	case throttle.HostSlowed:
		return v1.WaitsFor_WAITS_FOR_PAUSE
	case throttle.NamespaceShare:
		return v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE
	default:
		return v1.WaitsFor_WAITS_FOR_HOST
	}
}

// park puts an attempt off without having made it; a wait of zero is about
// parkPause.
func (e *Engine) park(ctx context.Context, t *trigger, cause throttle.Cause, wait time.Duration) result {
	if wait == 0 {
		wait = schedule.Around(parkPause, e.deps.Random())
	}
	due := t.due(v1.Cause_CAUSE_PARKED)
	due.WaitsFor = waitsFor(cause)
	at := e.deps.Clock.Now().Add(wait)
	err := e.untilTaken(t.sameTrace(ctx), pipeline.Requests, func(ctx context.Context) error {
		timer, err := e.deps.Client.SetTimer(ctx, due, at)
		if t.waiter != nil {
			t.waiter.Timer.Store(timer)
		}
		return err
	})
	if err != nil {
		return afterPublishError(err)
	}
	e.deps.Metrics.parked.WithLabelValues(string(cause)).Inc()
	return result{outcome: parked, wait: wait}
}

// maxAdvanced is how many wants a GET advances at most.
const maxAdvanced = 4

// advance lets wants come sooner that wait for the host of a GET longer than they
// have to, by timers in place of theirs. Those for which that fails come later.
func (e *Engine) advance(ctx context.Context, slot *throttle.Slot) {
	for range maxAdvanced {
		w, wait, ok := slot.Advance()
		if !ok {
			return
		}
		err := try(ctx, func(ctx context.Context) error { return e.advanceTo(ctx, w, e.deps.Clock.Now().Add(wait)) })
		if err != nil && !errors.Is(err, pipeline.ErrSuperseded) {
			return
		}
	}
}

// advanceTo replaces the timer that was set when a want was put off, and no other: a
// later one carries what has become of the want since.
func (e *Engine) advanceTo(ctx context.Context, w *throttle.Waiter, at time.Time) error {
	timer := w.Timer.Load()
	if timer == 0 {
		return nil // it could not be put off, or not yet
	}
	want, sequence, err := e.deps.Client.LastWant(ctx, w.Key)
	if err != nil {
		return err
	}
	if want == nil || sequence != w.Want {
		return nil // it waits for nothing any more
	}
	err = e.deps.Client.ReplaceTimer(ctx, &v1.Due{
		Want: slim(want), WantSequence: sequence, Cause: v1.Cause_CAUSE_PARKED, WaitsFor: v1.WaitsFor_WAITS_FOR_HOST,
	}, at, timer)
	if err == nil {
		e.deps.Metrics.advanced.Inc()
	}
	return err
}
