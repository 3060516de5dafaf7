// Package audit finds lost work: keys that do not hold their body while nothing is
// under way for them, and keys that nothing will refresh.
package audit

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/logfield"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// looks is the number of looks in an interval. Each key has its turn in one of
	// them. Keys that are not held may be read in all of them.
	looks = 8
	// timersAtOnce is the number of held keys, or a tenth of them if that is more,
	// whose timers are read in an interval.
	timersAtOnce = 100_000
	// perSuccess is how many pauses end for each key that is held again.
	perSuccess = 32
	// requestTimeout bounds one request to the broker. A look as a whole has
	// no bound: it goes on for as long as each request gets a response.
	requestTimeout = 10 * time.Second
)

// Config of an Auditor.
type Config struct {
	// Interval in which each key has a turn. All other times follow from it. By default
	// it is 2 min: the audit ignores a want for its first 30 s, a timer counts as lost
	// if it is 1 min late, and a delivered message counts as in work for 5 min.
	Interval time.Duration
}

// young is the age below which a want or a timer proves nothing: its effect may be on
// its way to the watch.
func (c Config) young() time.Duration { return c.Interval / 4 }

// overdue is how late a timer may be. The server loses one that it could not
// publish when it fired, and keeps it in the stream.
func (c Config) overdue() time.Duration { return c.Interval / 2 }

// inWork is how long a delivered message may be in work: longer than all of its
// deliveries take.
func (c Config) inWork() time.Duration { return c.Interval * 5 / 2 }

// longest is the maximum time between two reads of a key that is not held.
func (c Config) longest() time.Duration { return 5 * c.Interval }

// pause is the time before the next request of a key. It doubles with each request.
func (c Config) pause(requests uint8) time.Duration {
	return min(c.Interval<<(min(max(requests, 1), 8)-1), c.longest())
}

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
	config Config
	deps   Deps
	seed   maphash.Seed
	// table has the keys that are not held.
	table map[pipeline.Key]*row
	// turn counts the looks.
	turn int
	// stale counts stale keys since the interval began.
	stale int
}

// New returns an auditor that does not run.
func New(c Config, d Deps) *Auditor {
	return &Auditor{config: c, deps: d, seed: maphash.MakeSeed(), table: map[pipeline.Key]*row{}}
}

// Run looks until ctx is done. It records findings in the index and calls enqueue
// for their objects.
func (a *Auditor) Run(ctx context.Context, enqueue func(types.NamespacedName)) {
	for _, r := range a.table { // the stream may have lost their messages
		if r.underWay {
			r.notBefore = time.Time{}
		}
	}
	ticker := a.deps.Clock.NewTicker(a.config.Interval / looks)
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

// Look reads the keys whose turn it is, and the keys that are not held and wait for
// nothing.
func (a *Auditor) Look(ctx context.Context, enqueue func(types.NamespacedName)) error {
	began := a.deps.Clock.Now()
	l, err := a.begin(ctx)
	if err != nil {
		return err
	}
	l.enqueue = enqueue
	a.classifyAll(l)
	for _, name := range l.unwanted {
		enqueue(name)
	}
	a.endPauses(l)
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

// record notes a finding in the index, where the plan of the object finds it.
func (a *Auditor) record(l *look, c candidate) {
	if c.finding == wantindex.BodyLost {
		if c.requests > 0 {
			c.finding = wantindex.Refused
		}
		c.requests, c.waited, c.requestedAt = min(c.requests, 100)+1, false, l.now
		c.wait(l.now.Add(a.config.pause(c.requests)), false)
	}
	a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Finding = c.finding })
	a.deps.Metrics.lost.WithLabelValues(string(c.finding)).Inc()
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
		took: set.Histogram("audit_duration_seconds", "Duration of one of the eight steps in which the audit checks all keys.",
			prometheus.ExponentialBuckets(0.001, 4, 9)),
		stale: set.Gauge("stale_keys",
			"Keys without a good fetch for three of their intervals, according to the last eight looks of the audit."),
		lost: set.Counters("lost_keys_total",
			"Keys without their body or their timer that the audit requested again, by cause. "+
				"Cause refused: not for the first time.",
			metric.Of("cause", wantindex.BodyLost, wantindex.Refused, wantindex.TimerLost, wantindex.StreamBehind)),
	}
}
