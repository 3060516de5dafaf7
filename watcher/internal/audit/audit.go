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
	table    map[pipeline.Key]*row
	refusals map[refusal]refusalState
	// turn counts the looks.
	turn uint64
	// stale counts stale keys, and states keys by state, since the interval began.
	stale  int
	states map[state]int
}

// New returns an auditor that does not run. Each key has a turn in an interval, and all other times
// follow from it. By default it is 2 min.
func New(interval time.Duration, d Deps) *Auditor {
	return &Auditor{
		interval: interval, deps: d, seed: maphash.MakeSeed(),
		table: map[pipeline.Key]*row{}, refusals: map[refusal]refusalState{}, states: map[state]int{},
	}
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
		if r.reason != pausing {
			r.notBefore = time.Time{}
		}
	}
	ticker := a.deps.Clock.NewTicker(a.interval / looks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := a.Look(ctx, enqueue); err != nil && ctx.Err() == nil {
			a.deps.Log.Warn().Err(err).Msg("the audit could not read the streams")
		}
	}
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
	l := &look{now: a.deps.Clock.Now(), progress: progress, enqueue: enqueue}
	a.classifyAll(l)
	for _, name := range l.unwanted {
		enqueue(name)
	}
	for batch := range slices.Chunk(l.due, pipeline.MaxLatest/2) {
		if err := a.read(ctx, l, batch); err != nil {
			return err // the next look reads the rest
		}
	}
	if a.turn%looks == 0 {
		a.deps.Metrics.stale.Set(float64(a.stale))
		for _, s := range []state{isOK, isFailing, isPending} {
			a.deps.Metrics.keys.WithLabelValues(string(s)).Set(float64(a.states[s]))
		}
		a.stale, a.states = 0, map[state]int{}
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
	keys := a.deps.Index.Len()
	rounds := uint64(max(1, keys/max(timersAtOnce, keys/10)))
	maps.DeleteFunc(a.table, func(key pipeline.Key, _ *row) bool {
		_, found := a.deps.Index.Want(key)
		return !found
	})
	maps.DeleteFunc(a.refusals, func(_ refusal, s refusalState) bool {
		return l.age(s.requestedAt) > a.longest() && l.age(s.heldAt) > a.longest()
	})
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		n, known := maphash.Comparable(a.seed, key), a.table[key] != nil
		turn := n%looks == a.turn%looks
		if turn || known {
			a.classify(l, key, w, turn, turn && (known || n/looks%rounds == a.turn/looks%rounds))
		}
	})
}

// classify adds a want to a list of the look, if it belongs to one. Turn and timer report
// whether it is the turn of the key, and of its timer if it is held.
func (a *Auditor) classify(l *look, key pipeline.Key, w wantindex.Want, turn, timer bool) {
	c, wanted := a.candidate(key, w)
	if !wanted {
		l.unwanted = append(l.unwanted, wantindex.ObjectOf(key))
		delete(a.table, key)
		return
	}
	if turn {
		a.states[c.state()]++
	}
	interval := c.object.Request.Interval(key.Key)
	if turn && c.entry.Failing() && condition.FailsForLong(c.entry.Since, interval, l.now) {
		a.stale++
	}
	before := a.table[key]
	same := before != nil && before.shows == c.shows
	if same || c.shows.holding == plan.NotHeld {
		if !l.handled(w.Fence.Seq, w.At, a.inWork()) {
			return
		}
		if same {
			c.row = before
		}
		a.table[key] = c.row
		if a.isDue(l, c) {
			l.due = append(l.due, c)
		}
		return
	}
	delete(a.table, key)
	if c.shows.holding != plan.Held {
		return
	}
	if before != nil && before.requests > 0 {
		reason := before.refusal(key)
		a.refusals[reason] = refusalState{requestedAt: a.refusals[reason].requestedAt, heldAt: l.now}
	}
	if w.Refreshes && (l.ahead(c) || timer && l.handled(w.Fence.Seq, w.At, a.young())) {
		l.due = append(l.due, c)
	}
}

// isDue reports whether a key in the table waits for nothing. Its pause after a request ends early
// when a key that was refused for the same reason is held. To find that out soon, one key of each
// refusal is requested in each half interval.
func (a *Auditor) isDue(l *look, c candidate) bool {
	wait, reason := c.notBefore.Sub(l.now), c.refusal(c.key)
	state := a.refusals[reason]
	switch {
	case l.age(c.want.At) < a.young():
		return false
	case wait <= 0, wait > a.longest()+ahead: // the clock was set back
		return true
	case c.reason != pausing:
		return false
	case c.requestedAt.Before(state.heldAt):
		return true
	case state.probedIn == a.turn, l.age(state.requestedAt) < a.interval/2,
		reason.class == v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE: // an edit or a refresh shows that it is smaller
		return false
	}
	state.probedIn = a.turn
	a.refusals[reason] = state
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
		reason := c.refusal(c.key)
		a.refusals[reason] = refusalState{requestedAt: l.now, heldAt: a.refusals[reason].heldAt}
	}
	a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Finding = c.finding })
	a.deps.Metrics.lost.WithLabelValues(string(c.finding)).Inc()
	l.found++
}

// Metrics of an Auditor.
type Metrics struct {
	took  prometheus.Histogram
	stale prometheus.Gauge
	keys  *prometheus.GaugeVec
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
		keys: set.Gauges("keys", "Keys by state, as of the last audit. Failing ones may hold "+
			"their last good value.", metric.Of("state", isOK, isFailing, isPending)),
		lost: set.Counters("lost_keys_total",
			"Keys without their body or their timer that the audit requested again, by cause. "+
				"Cause refused: not for the first time.",
			metric.Of("cause", wantindex.BodyLost, wantindex.Refused, wantindex.TimerLost, wantindex.StreamBehind)),
	}
}
