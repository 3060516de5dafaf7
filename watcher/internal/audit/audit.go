// Package audit finds lost work: keys that do not hold their body while nothing is
// under way for them, and keys that nothing will refresh.
package audit

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/logfield"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/backlog"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/tick"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// looks is the number of looks in an interval. Each key has its turn in one of
	// them. Keys in the table may be read in all of them.
	looks = 8
	// timersAtOnce is the number of held keys, or a tenth of them if that is more,
	// whose timers are read in an interval.
	timersAtOnce = 100_000
	// requestTimeout bounds one request to the broker. A look as a whole has
	// no bound: it goes on for as long as each request gets a response.
	requestTimeout = 10 * time.Second
)

// Deps are what an Auditor works with.
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

// Auditor looks at all keys in each interval.
type Auditor struct {
	interval time.Duration
	deps     Deps
	seed     maphash.Seed
	// table has the keys that are not held, and those with a newer body that did not land.
	table map[pipeline.Key]*row
	// accepted has the refusals of keys that the last look found to be held after a request.
	accepted map[refusal]bool
	// turn counts the looks.
	turn uint64
	// stale counts stale keys since the interval began.
	stale int
}

// New returns an auditor that does not run. Each key has a turn in an interval, and all other times
// follow from it. By default it is 2 min.
func New(interval time.Duration, d Deps) *Auditor {
	return &Auditor{interval: interval, deps: d, seed: maphash.MakeSeed(), table: map[pipeline.Key]*row{}}
}

// young is the age below which a want or a timer proves nothing: its effect may be on
// its way to the watch.
func (a *Auditor) young() time.Duration { return a.interval / 4 }

// overdue is how late a timer may be. The server loses one that it could not
// publish when it fired, and keeps it in the stream.
func (a *Auditor) overdue() time.Duration { return a.interval / 2 }

// inWork is how long a delivered message may be in work: longer than all of its
// deliveries take.
func (a *Auditor) inWork() time.Duration { return a.interval * 5 / 2 }

// longest is the maximum time between two reads of a key in the table.
func (a *Auditor) longest() time.Duration { return 5 * a.interval }

// Run looks until ctx is done. It records findings in the index and calls enqueue
// for their objects.
func (a *Auditor) Run(ctx context.Context, enqueue func(types.NamespacedName)) {
	for _, r := range a.table { // the stream may have lost their messages
		r.notBefore = time.Time{}
	}
	tick.Every(ctx, a.deps.Clock, a.interval/looks, func() {
		if err := a.Look(ctx, enqueue); err != nil && ctx.Err() == nil {
			a.deps.Log.Warn().Err(err).Msg("the audit could not read the streams")
		}
	})
}

// Look reads the keys whose turn it is, and the keys in the table that wait for nothing.
func (a *Auditor) Look(ctx context.Context, enqueue func(types.NamespacedName)) error {
	began := a.deps.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	progress, err := backlog.Read(limited, a.deps.Client.JetStream())
	if err != nil {
		return err
	}
	l := &look{
		now: a.deps.Clock.Now(), progress: progress, enqueue: enqueue,
		accepted: a.accepted, requested: map[refusal]time.Time{},
	}
	a.classifyAll(l)
	for batch := range slices.Chunk(l.due, pipeline.MaxLatest/2) {
		if err := a.read(ctx, l, batch); err != nil {
			return err // the next look reads the rest
		}
	}
	if a.turn%looks == 0 {
		a.deps.Metrics.stale.Set(float64(a.stale))
		a.stale = 0
	}
	took := a.deps.Clock.Since(began)
	a.deps.Metrics.took.Observe(took.Seconds())
	if l.found > 0 {
		logfield.Duration(a.deps.Log.Info().Int("keys", l.found), "took", took).Msg("the audit found lost keys")
	}
	return nil
}

// classifyAll finds the keys whose timers a look has to read.
func (a *Auditor) classifyAll(l *look) {
	a.turn++
	a.accepted = map[refusal]bool{}
	maps.DeleteFunc(a.table, func(key pipeline.Key, r *row) bool {
		if r.requestedAt.After(l.requested[r.refusal]) {
			l.requested[r.refusal] = r.requestedAt
		}
		_, found := a.deps.Index.Want(key)
		return !found
	})
	timers := looks * uint64(max(1, min(a.deps.Index.Len()/timersAtOnce, 10)))
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		n := maphash.Comparable(a.seed, key)
		if turn := n%looks == a.turn%looks; turn || a.table[key] != nil {
			a.classify(l, key, w, turn, n%timers == a.turn%timers)
		}
	})
}

// classify adds a want to those of the look, if its timer has to be read. Turn and timer report
// whether it is the turn of the key, and of its timer if it is held.
func (a *Auditor) classify(l *look, key pipeline.Key, w wantindex.Want, turn, timer bool) {
	before := a.table[key]
	c, wanted := a.candidate(key, w)
	if !wanted { // the object may have changed unseen
		delete(a.table, key)
		l.enqueue(wantindex.ObjectOf(key))
		return
	}
	if turn && c.entry.Failing() && condition.FailsForLong(c.entry.Since, c.object.Request.Interval(key.Key), l.now) {
		a.stale++
	}
	same := before != nil && before.shows == c.shows
	if same {
		c.row = before
	}
	switch {
	case same || c.shows.holding == plan.NotHeld:
		if !l.handled(w.Fence.Seq, w.At, a.inWork()) {
			return
		}
		if a.table[key] = c.row; a.isDue(l, c) {
			l.due = append(l.due, c)
		}
		return
	case before != nil && before.requests > 0 && c.shows.holding == plan.Held:
		a.accepted[before.refusal] = true
	}
	delete(a.table, key)
	timer = timer && l.handled(w.Fence.Seq, w.At, a.young())
	if w.Refreshes && c.shows.holding == plan.Held && (timer || l.behind(c)) {
		l.due = append(l.due, c)
	}
}

// isDue reports whether a key in the table waits for nothing. Its pause after a request ends when a
// key that was refused for the same reason is held. To find that out soon, one key of each refusal
// is requested in each half interval.
func (a *Auditor) isDue(l *look, c candidate) bool {
	if c.reason == pausing && l.accepted[c.refusal] {
		c.notBefore = time.Time{}
	}
	switch wait := c.notBefore.Sub(l.now); {
	case l.age(c.want.At) < a.young():
		return false
	case wait <= 0, wait > a.longest()+ahead: // the clock was set back
		return true
	case c.reason != pausing, l.age(l.requested[c.refusal]) < a.interval/2,
		c.refusal.class == v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE: // an edit or a refresh shows that it is smaller
		return false
	}
	l.requested[c.refusal] = l.now // one key in each look
	return true
}

// record notes a finding in the index, where the plan of the object finds it.
func (a *Auditor) record(l *look, c candidate) {
	if c.finding == wantindex.BodyLost {
		if c.requests > 0 {
			c.finding = wantindex.Refused
		}
		c.wait(pausing, l.now.Add(min(a.interval<<c.requests, a.longest())))
		c.requests, c.requestedAt = min(c.requests+1, looks), l.now
		c.refusal = refusal{c.key.Namespace, pipeline.ClassOf(c.shows.failure)}
	}
	a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Finding = c.finding })
	a.deps.Metrics.lost.WithLabelValues(string(c.finding)).Inc()
	l.found++
}

// Metrics of an Auditor.
type Metrics struct {
	took  prometheus.Histogram
	stale prometheus.Gauge
	lost  *prometheus.CounterVec
}

// NewMetrics makes the metrics in the set of the watcher.
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
