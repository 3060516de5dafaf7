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

// NewMetrics registers the metrics in the set of the writer.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		emitted: set.Counters("events_emitted_total", "Events written for owners of ConfigMaps, by reason.",
			metric.Of("reason", plan.Reasons()...)),
		dropped: set.Counter("events_dropped_total", "Events dropped because their namespace exceeded its budget."),
	}
}

// Deps are the dependencies of an Emitter.
type Deps struct {
	Recorder *kube.Recorder
	// Budget limits the Events of each namespace.
	Budget  *budget.Budget
	Metrics *Metrics
	// Log gets a line when a namespace exceeds its budget.
	Log zerolog.Logger
}

// Emitter emits Events and counts them.
type Emitter struct {
	deps    Deps
	refused atomic.Bool
}

// New returns an emitter.
func New(d Deps) *Emitter { return &Emitter{deps: d} }

// Emit emits events until one fails, and reports whether it wrote any that this process had not
// written before. Events over the budget of the namespace are only counted.
func (e *Emitter) Emit(
	ctx context.Context, ref types.NamespacedName, uid types.UID, events []plan.Event,
) (written bool, err error) {
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

// Refused records that Events are refused, and reports whether that is new.
func (e *Emitter) Refused() bool { return !e.refused.Swap(true) }

// affords spends one Event of the budget of a namespace, if it has one.
func (e *Emitter) affords(namespace string) bool {
	short := e.deps.Budget.Take(namespace, 1)
	if short == nil {
		return true
	}
	e.deps.Metrics.dropped.Inc()
	if short.First {
		e.deps.Log.Warn().Str("namespace", namespace).Str("budget", budget.Events).
			Msg("namespace exceeded its Event budget, Events are dropped")
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
