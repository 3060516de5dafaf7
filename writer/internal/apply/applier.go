// Package apply carries out the plans of package plan on a real API server.
//
// A strategic merge patch carries the uid and the resourceVersion of the planned object. Usually
// that version is known from the want or from our own last patch, so the patch is the only request.
// If the object has changed, it is read, planned and patched again.
package apply

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// applyTimeout is the time limit of all requests for one batch. It is well below the time after
// which the message is delivered again.
const applyTimeout = 22 * time.Second

// Config configures an Applier.
type Config struct {
	Planner plan.Planner
	// Concurrency is the maximum number of objects that are worked on at a time. Above 32, an API server on two cores
	// gets slower, not busier.
	Concurrency int
	// Writes and WriteBytes are the budgets of each namespace.
	Writes, WriteBytes budget.Config
	// History says which bodies are kept for a rollback.
	History HistoryConfig
}

// Deps are the dependencies of an Applier.
type Deps struct {
	Decoder plan.Decoder
	// Protected has the namespaces that are never served.
	Protected  []string
	Client     *apiserver.Client
	Breaker    *apiserver.Breaker
	Signatures *signature.Verifier
	Recorder   *kube.Recorder
	// Pipeline has the history; nil: keep none.
	Pipeline *pipeline.Client
	Metrics  *Metrics
	// Tracer makes a span for each message. Nil means none.
	Tracer *tracing.Tracer
	// Log gets one line per result.
	Log zerolog.Logger
}

// Applier applies results to ConfigMaps while the API server is available.
type Applier struct {
	config Config
	deps   Deps
	// objects holds the metadata of objects after our last patch, undecoded, because most of it is never
	// read again. Stale metadata does no harm, because the API server refuses the patch.
	objects expiring[types.NamespacedName, *metav1.ObjectMeta]
	// confirmed holds the newest fetch that found the value of a key unchanged. An older failure that arrives
	// late must not be written, because the fetcher would never report its end.
	confirmed expiring[keyID, plan.Confirmation]
	// unwritable has the keys that an Event, but not the status, reports as not written.
	unwritable expiring[keyID, bool]
	// faults counts failed requests in a row by object.
	faults  expiring[types.NamespacedName, int]
	budgets budgets
	queue   *queue
	history *history
	lines   *process.SampledLog
	// eventsDenied means that the denial of Events is already logged.
	eventsDenied atomic.Bool
	// logged has the signature errors that are already logged.
	logged sync.Map
}

// New returns an applier.
func New(c Config, d Deps) (*Applier, error) {
	a := &Applier{
		config: c, deps: d, lines: process.NewSampledLog(d.Log),
		budgets: budgets{budget.New(c.Writes, time.Now), budget.New(c.WriteBytes, time.Now)},
		// Cached objects only have to span consecutive results of one object.
		objects: newExpiring[types.NamespacedName, *metav1.ObjectMeta](2048, 30*time.Second),
		// Results may come back for this long after an outage.
		confirmed: newExpiring[keyID, plan.Confirmation](16384, 10*time.Minute),
		// Kubernetes keeps Events for this long.
		unwritable: newExpiring[keyID, bool](4096, time.Hour),
		// The audit requests the keys of a failing object this often.
		faults: newExpiring[types.NamespacedName, int](1024, 15*time.Minute),
	}
	a.queue = newQueue(c.Concurrency, a.Apply)
	var err error
	a.history, err = newHistory(c.History, d.Pipeline, d.Metrics, a.lines)
	return a, err
}

// Applied tells what became of a result.
type Applied struct {
	// Outcome is empty if the result was not applied because the API server was unavailable. A result that was refused
	// because of its own object has one.
	Outcome plan.Outcome
	// NewPage means that the body is an HTML page for the first time.
	NewPage bool
	// After is the pause that the API server requested.
	After time.Duration
	// Together is the number of results in the batch.
	Together int
}

// Apply applies results of one ConfigMap and returns one Applied for each. Calls for the same
// object must not overlap.
func (a *Applier) Apply(ctx context.Context, ref types.NamespacedName, items []plan.Item) []Applied {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	a.deps.Metrics.batch.Observe(float64(len(items)))
	if !a.deps.Breaker.Allows() {
		return make([]Applied, len(items))
	}
	began := time.Now()
	t := a.newTask(ref, items)
	t.assumeObject()
	applied := t.run(ctx)
	a.deps.Metrics.seconds.Observe(time.Since(began).Seconds())
	for i, o := range applied {
		applied[i].Together = len(items)
		if o.Outcome != "" {
			a.observe(o.Outcome, items[i].Result)
		}
	}
	return applied
}
