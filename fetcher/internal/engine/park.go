package engine

import (
	"context"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Causes of a parked attempt besides those of package throttle.
const (
	sharedCallSlow throttle.Cause = "shared_call_slow" // a shared GET takes too long
	namespaceBytes throttle.Cause = "namespace_bytes"  // the namespace exceeded its budget of bodies
)

// waitsFor has the cause of a parked attempt in its timer.
var waitsFor = map[throttle.Cause]v1.WaitsFor{
	sharedCallSlow:          v1.WaitsFor_WAITS_FOR_SHARED_GET,
	namespaceBytes:          v1.WaitsFor_WAITS_FOR_NAMESPACE_BYTES,
	throttle.HostBusy:       v1.WaitsFor_WAITS_FOR_HOST,
	throttle.HostSlowed:     v1.WaitsFor_WAITS_FOR_PAUSE,
	throttle.NamespaceShare: v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE,
	throttle.SlotsBusy:      v1.WaitsFor_WAITS_FOR_SLOTS,
}

// park postpones an attempt by a timer.
func (e *Engine) park(ctx context.Context, t *trigger, cause throttle.Cause, wait time.Duration) ending {
	due := t.due(v1.Cause_CAUSE_PARKED)
	due.WaitsFor = waitsFor[cause]
	if _, err := e.setTimer(t.sameTrace(ctx), due, e.deps.Clock.Now().Add(wait)); err != nil {
		return afterPublishError(err)
	}
	e.deps.Metrics.parked.WithLabelValues(string(cause)).Inc()
	return ending{outcome: parked, wait: wait}
}
