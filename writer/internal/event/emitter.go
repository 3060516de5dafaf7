// Package event emits the Events of the writer.
package event

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Metrics count Events.
type Metrics struct {
	emitted *prometheus.CounterVec
	dropped prometheus.Counter
}

// NewMetrics makes the counters of Events in the set of the writer.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		emitted: set.Counters("events_emitted_total", "Events written for owners of ConfigMaps, by reason.", metric.Of("reason", plan.Reasons()...)),
		dropped: set.Counter("events_dropped_total", "Events not written, since their namespace is over its budget of them."),
	}
}

// Deps is what an Emitter works with.
type Deps struct {
	// Recorder writes the Events.
	Recorder *kube.Recorder
	// Budget is how many are written for each namespace.
	Budget *budget.Budget
	// Metrics count them.
	Metrics *Metrics
	// Log has a line when a namespace gets over its budget.
	Log zerolog.Logger
}

// Emitter emits Events and counts them.
type Emitter struct {
	deps    Deps
	refused atomic.Bool
}

// New returns an emitter that counts what it emits.
func New(d Deps) *Emitter { return &Emitter{deps: d} }

// Emit emits events until one fails, and reports whether it wrote any: this process
// may have written them before. What is above the budget of the namespace is counted
// in place of being written.
func (e *Emitter) Emit(ctx context.Context, ref types.NamespacedName, uid types.UID, events []plan.Event) (written bool, err error) {
	for _, event := range events {
		full := of(ref, uid, event)
		if full.Again.IsZero() && e.deps.Recorder.Recorded(full) || !e.affords(ref.Namespace) {
			continue
		}
		if err := e.record(ctx, full); err != nil {
			return written, err
		}
		e.refused.Store(false)
		e.deps.Metrics.emitted.WithLabelValues(event.Reason).Inc()
		written = true
	}
	return written, nil
}

// Refused notes that Events are refused, and reports whether that is a change.
func (e *Emitter) Refused() bool { return !e.refused.Swap(true) }

// affords reports whether a namespace is within its budget of Events, and uses
// it up by one.
func (e *Emitter) affords(namespace string) bool {
	short := e.deps.Budget.Take(namespace, 1)
	if short == nil {
		return true
	}
	e.deps.Metrics.dropped.Inc()
	if short.First {
		e.deps.Log.Warn().Str("namespace", namespace).Str("budget", budget.Events).
			Msg("the namespace is over its budget of Events; no more are written until some of it has come back")
	}
	return false
}

func (e *Emitter) record(ctx context.Context, event kube.Event) error {
	ctx, cancel := context.WithTimeout(ctx, apiserver.CallTimeout)
	defer cancel()
	return e.deps.Recorder.Record(ctx, event)
}

func of(ref types.NamespacedName, uid types.UID, e plan.Event) kube.Event {
	return kube.Event{
		Namespace: ref.Namespace, Name: ref.Name, UID: uid,
		Warning: e.Warning, Reason: e.Reason, Action: e.Action, Note: e.Note, Occurrence: e.Occurrence, Again: e.Again,
	}
}
