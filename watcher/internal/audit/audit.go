// Package audit finds lost work: keys without their body or work in flight, and keys without a
// refresh timer.
package audit

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/pace"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
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
	interval time.Duration
	deps     Deps
	seed     maphash.Seed
	// suspects are the keys that are not held, or whose newest body has not landed.
	suspects map[pipeline.Key]*suspect
	// lifted has the refusals that are over: the last step found a key held after a request.
	lifted map[refusal]bool
	// turn counts the steps.
	turn uint64
	// stale counts stale keys since the interval began.
	stale int
	// refused has the keys that were requested twice and do not hold their body, as of the last step.
	refused atomic.Pointer[map[pipeline.Key]bool]
}

// Refused reports whether the body of a key was fetched again and did not land, for example because of an admission
// webhook.
func (a *Auditor) Refused(key pipeline.Key) bool {
	refused := a.refused.Load()
	return refused != nil && (*refused)[key]
}

// New returns an Auditor. All its durations are fractions or multiples of the interval, 2 min by
// default.
func New(interval time.Duration, d Deps) *Auditor {
	return &Auditor{interval: interval, deps: d, seed: maphash.MakeSeed(), suspects: map[pipeline.Key]*suspect{}}
}

// grace is how long the watch may take to show the effect of a new want or timer.
func (a *Auditor) grace() time.Duration { return a.interval / 4 }

// maxTimerDelay is the maximum delay of a timer. If the server cannot publish a timer when it fires,
// the timer stays in the stream and never fires again.
func (a *Auditor) maxTimerDelay() time.Duration { return a.interval / 2 }

// maxInFlight is how long a delivered message counts as in flight. All its deliveries take less.
func (a *Auditor) maxInFlight() time.Duration { return a.interval * 5 / 2 }

// maxPause is the maximum time between two checks of a suspect.
func (a *Auditor) maxPause() time.Duration { return 5 * a.interval }

// Run audits until ctx is done. It records findings in the index and enqueues their objects.
func (a *Auditor) Run(ctx context.Context, enqueue func(types.NamespacedName)) {
	for _, r := range a.suspects { // the stream may have lost the messages they wait for
		r.notBefore = time.Time{}
	}
	pace.Every(ctx, a.deps.Clock, a.interval/steps, func() {
		if err := a.Step(ctx, enqueue); err != nil && ctx.Err() == nil {
			a.deps.Log.Warn().Err(err).Msg("the audit could not read the streams")
		}
	})
}

// Step checks the keys whose turn it is, and the suspects whose pause is over.
func (a *Auditor) Step(ctx context.Context, enqueue func(types.NamespacedName)) error {
	began := a.deps.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	progress, err := wantindex.ReadProgress(limited, a.deps.Client.JetStream(), pipeline.Requests, pipeline.FetcherConsumer)
	if err != nil {
		return err
	}
	s := &step{
		now: a.deps.Clock.Now(), progress: progress, enqueue: enqueue,
		lifted: a.lifted, requested: map[refusal]time.Time{},
	}
	a.classifyAll(s)
	for batch := range slices.Chunk(s.toRead, pipeline.MaxLatest/2) {
		if err := a.read(ctx, s, batch); err != nil {
			return err // the next step reads the other suspects
		}
	}
	if a.turn%steps == 0 {
		a.deps.Metrics.stale.Set(float64(a.stale))
	}
	refused := map[pipeline.Key]bool{}
	for key, r := range a.suspects {
		if r.requests > 1 {
			refused[key] = true
		}
	}
	a.refused.Store(&refused)
	took := a.deps.Clock.Since(began)
	a.deps.Metrics.took.Observe(took.Seconds())
	if s.found > 0 {
		process.LogDuration(a.deps.Log.Info().Int("keys", s.found), "took", took).Msg("the audit found lost keys")
	}
	return nil
}

// classifyAll selects the keys whose timers a step reads.
func (a *Auditor) classifyAll(s *step) {
	if a.turn++; a.turn%steps == 1 {
		a.stale = 0 // also if the last step of the previous interval failed
	}
	a.lifted = map[refusal]bool{}
	maps.DeleteFunc(a.suspects, func(key pipeline.Key, r *suspect) bool {
		if r.requestedAt.After(s.requested[r.refusal]) {
			s.requested[r.refusal] = r.requestedAt
		}
		_, found := a.deps.Index.Want(key)
		return !found
	})
	timers := steps * uint64(max(1, min(a.deps.Index.Len()/timersPerInterval, 10)))
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		n := maphash.Comparable(a.seed, key)
		if turn := n%steps == a.turn%steps; turn || a.suspects[key] != nil {
			a.classify(s, key, w, turn, n%timers == a.turn%timers)
		}
	})
}

// classify selects a key if its timer must be read. turn means that it is the turn of the key, and
// timer that it is the turn of its timer.
func (a *Auditor) classify(s *step, key pipeline.Key, w wantindex.Want, turn, timer bool) {
	before := a.suspects[key]
	c, wanted := a.candidate(key, w)
	if !wanted { // the watcher may have missed a change of the object
		delete(a.suspects, key)
		s.enqueue(wantindex.ObjectOf(key))
		return
	}
	if turn && c.entry.Failing() && condition.FailsForLong(c.entry.Since, c.object.Request.Interval(key.Key), s.now) {
		a.stale++
	}
	same := before != nil && before.observed == c.observed
	if same {
		c.suspect = before
	}
	switch {
	case same || c.observed.holding == plan.NotHeld:
		if !s.handled(w.Fence.Seq, w.At, a.maxInFlight()) {
			return
		}
		if a.suspects[key] = c.suspect; a.shouldRead(s, c) {
			s.toRead = append(s.toRead, c)
		}
		return
	case before != nil && before.requests > 0 && c.observed.holding == plan.Held:
		a.lifted[before.refusal] = true
	}
	delete(a.suspects, key)
	timer = timer && s.handled(w.Fence.Seq, w.At, a.grace())
	if w.Refreshes && c.observed.holding == plan.Held && (timer || s.restored(c)) {
		s.toRead = append(s.toRead, c)
	}
}

// shouldRead reports whether the pause of a suspect is over. The pause after a request also ends when
// another key with the same refusal is held. To notice that soon, one key per refusal is requested
// every half interval.
func (a *Auditor) shouldRead(s *step, c candidate) bool {
	if c.reason == pausing && s.lifted[c.refusal] {
		c.notBefore = time.Time{}
	}
	switch wait := c.notBefore.Sub(s.now); {
	case s.age(c.want.At) < a.grace():
		return false
	case wait <= 0, wait > a.maxPause()+maxSkew: // the clock was set back
		return true
	case c.reason != pausing, s.age(s.requested[c.refusal]) < a.interval/2,
		c.refusal.class == v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE, // only an edit or a refresh helps
		c.stripped():
		return false
	}
	s.requested[c.refusal] = s.now
	return true
}

// record stores a finding in the index, from which the next plan of the object takes it.
func (a *Auditor) record(s *step, c candidate) {
	if c.finding == wantindex.BodyLost {
		if c.requests > 0 {
			c.finding = wantindex.Refused
		}
		c.wait(pausing, s.now.Add(min(a.interval<<c.requests, a.maxPause())))
		c.requests, c.requestedAt = min(c.requests+1, 8), s.now // 8 doublings exceed maxPause
		c.refusal = refusal{c.key.Namespace, pipeline.ClassOf(c.observed.failure)}
	}
	c.queuedUpTo = 0
	a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Finding = c.finding })
	a.deps.Metrics.lost.WithLabelValues(string(c.finding)).Inc()
	s.found++
}

// Metrics are the metrics of an Auditor.
type Metrics struct {
	took  prometheus.Histogram
	stale prometheus.Gauge
	lost  *prometheus.CounterVec
}

// NewMetrics creates the metrics in the watcher's set.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		took: set.Histogram("audit_duration_seconds",
			"Duration of one of the eight steps in which the audit checks all keys.",
			prometheus.ExponentialBuckets(0.001, 4, 9)),
		stale: set.Gauge("stale_keys",
			"Keys without a good fetch for three of their intervals, as of the last audit."),
		lost: set.Counters("lost_keys_total",
			"Keys without their body or their timer that the audit requested again, by cause. "+
				"Cause refused: not for the first time.",
			metric.Of("cause", wantindex.BodyLost, wantindex.Refused, wantindex.TimerLost)),
	}
}
