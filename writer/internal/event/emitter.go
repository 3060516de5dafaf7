// Package event emits the Events of the writer.
package event

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/proto/service/metric"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Recorder writes an Event unless the same has been written before.
type Recorder interface {
	Record(ctx context.Context, e kube.Event) error
	// Recorded reports whether this process has lately written the Event.
	Recorded(e kube.Event) bool
}

// NewMetric makes the counter of Events in the set of the writer.
func NewMetric(set *metric.Set) *prometheus.CounterVec {
	return set.Counters("events_emitted_total", "Events written for owners of ConfigMaps, by reason.", metric.Of("reason", plan.Reasons()...))
}

// Result is what became of Events.
type Result int

// The results.
const (
	// Emitted: at least one was written now.
	Emitted Result = iota + 1
	// Known: this process has written them before.
	Known
	// Failed: one could not be written.
	Failed
)

// Emitter emits Events and counts them.
type Emitter struct {
	recorder Recorder
	emitted  *prometheus.CounterVec
	refused  atomic.Bool
}

// New returns an emitter that counts what it emits.
func New(r Recorder, emitted *prometheus.CounterVec) *Emitter {
	return &Emitter{recorder: r, emitted: emitted}
}

// Emit emits events until one fails.
func (e *Emitter) Emit(ctx context.Context, ref types.NamespacedName, uid types.UID, events []plan.Event) (Result, error) {
	result := Known
	for _, event := range events {
		full := of(ref, uid, event)
		if e.recorder.Recorded(full) {
			continue
		}
		if err := e.record(ctx, full); err != nil {
			return Failed, err
		}
		e.refused.Store(false)
		e.emitted.WithLabelValues(event.Reason).Inc()
		result = Emitted
	}
	return result, nil
}

// Refused notes that Events are refused, and reports whether that is a change.
func (e *Emitter) Refused() bool { return !e.refused.Swap(true) }

func (e *Emitter) record(ctx context.Context, event kube.Event) error {
	ctx, cancel := context.WithTimeout(ctx, apiserver.CallTimeout)
	defer cancel()
	return e.recorder.Record(ctx, event)
}

func of(ref types.NamespacedName, uid types.UID, e plan.Event) kube.Event {
	return kube.Event{
		Namespace: ref.Namespace, Name: ref.Name, UID: uid,
		Warning: e.Warning, Reason: e.Reason, Action: e.Action, Note: e.Note, Occurrence: e.Occurrence,
	}
}
