// Package audit finds lost work: keys without their body or work in flight, and keys without a
// refresh timer.
package audit

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// steps is the number of steps per interval. Each key has its turn in one of them. Every step may
	// check suspects.
	steps = 8
	// timersPerInterval is the number of held keys whose timers are read per interval, or a tenth of
	// all if that is more.
	timersPerInterval = 100_000
	// requestTimeout is the timeout for one batch of keys. A step as a whole has none.
	requestTimeout = 10 * time.Second
)

// Deps are the dependencies of an Auditor.
type Deps struct {
	Client *pipeline.Client
	Index  *wantindex.Index
	// Object returns an annotated ConfigMap, or nil.
	Object func(types.NamespacedName) *annotated.Object
	// Clock is the clock of the broker, which stamps all messages.
	Clock   clock.WithTicker
	Log     zerolog.Logger
	Metrics *Metrics
}

// Auditor checks every key once per interval.
type Auditor struct {
	interval interval
	deps     Deps
	seed     maphash.Seed
	// suspects are the keys that are not held, or whose newest body has not landed.
	suspects map[pipeline.Key]*suspect
	// lifted has the groups whose cause is gone: the last step found a key held after a request.
	lifted map[failureGroup]bool
	// turn counts the steps.
	turn uint64
	// notLanding has the digests of the newest bodies of keys that were requested twice. Each step replaces it.
	notLanding atomic.Pointer[map[pipeline.Key]string]
}

// NotLanding reports whether the body of a key was fetched again and did not land, for example because of an admission
// webhook, and returns the digest of its newest body, if known.
func (a *Auditor) NotLanding(key pipeline.Key) (newest string, notLanding bool) {
	if all := a.notLanding.Load(); all != nil {
		newest, notLanding = (*all)[key]
	}
	return newest, notLanding
}

// New returns an Auditor.
func New(every time.Duration, d Deps) *Auditor {
	return &Auditor{interval: interval(every), deps: d, seed: maphash.MakeSeed(), suspects: map[pipeline.Key]*suspect{}}
}

// Run audits until ctx is done. It records findings in the index and enqueues their objects.
func (a *Auditor) Run(ctx context.Context, enqueue func(types.NamespacedName)) {
	for _, k := range a.suspects { // the stream may have lost the messages they wait for
		k.notBefore = time.Time{}
	}
	ticker := a.deps.Clock.NewTicker(time.Duration(a.interval) / steps)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := a.Step(ctx, enqueue); err != nil && ctx.Err() == nil {
				a.deps.Log.Warn().Err(err).Msg("the audit could not read the streams")
			}
		}
	}
}

// Step checks the keys whose turn it is, and the suspects whose pause is over.
func (a *Auditor) Step(ctx context.Context, enqueue func(types.NamespacedName)) error {
	began := a.deps.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	progress, err := a.deps.Client.Progress(limited, pipeline.Requests, pipeline.FetcherConsumer)
	if err != nil {
		return err
	}
	s := &step{
		now: a.deps.Clock.Now(), progress: progress, enqueue: enqueue,
		lifted: a.lifted, requested: map[failureGroup]time.Time{},
	}
	a.choose(s)
	for batch := range slices.Chunk(s.toRead, pipeline.MaxLastMessages/2) {
		if err := a.judge(ctx, s, batch); err != nil {
			return err // the next step reads the other suspects
		}
	}
	notLanding := map[pipeline.Key]string{}
	for key, k := range a.suspects {
		if k.requests > 1 {
			notLanding[key] = k.newest
		}
	}
	a.notLanding.Store(&notLanding)
	took := a.deps.Clock.Since(began)
	a.deps.Metrics.took.Observe(took.Seconds())
	if s.found > 0 {
		process.LogDuration(a.deps.Log.Info().Int("keys", s.found), "took", took).Msg("the audit found lost keys")
	}
	return nil
}

// Metrics are the metrics of an Auditor.
type Metrics struct {
	took prometheus.Histogram
	lost *prometheus.CounterVec
}

// NewMetrics creates the metrics in the watcher's set.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		took: set.Histogram("audit_duration_seconds",
			"Duration of one of the eight steps in which the audit checks all keys.",
			prometheus.ExponentialBuckets(0.001, 4, 9)),
		lost: set.Counters("lost_keys_total",
			"Keys without their body or their timer that the audit requested again, by finding.",
			metric.Labeled("finding", wantindex.BodyLost, wantindex.BodyLostAgain, wantindex.TimerLost)),
	}
}
