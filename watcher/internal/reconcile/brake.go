package reconcile

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// MaxRemovals limits the keys that are removed in a namespace within a minute. Removals are
// stopped if they exceed both limits.
type MaxRemovals struct {
	// Keys is the maximum number of keys (0: no limit).
	Keys int
	// Percent is the maximum share of the namespace's keys. If a larger share of the namespaces
	// exceeds it, as after a mass edit, all removals are stopped.
	Percent int
}

const (
	// removalWindow is how long a removal counts.
	removalWindow = time.Minute
	// countInterval is the minimum time between two counts of all objects, and countShare the minimum ratio of
	// that time to the duration of a count, up to a removalWindow: the process may have been paused during a count.
	countInterval = time.Second
	countShare    = 50
	// minSpread is the minimum number of namespaces that stop all others.
	minSpread = 3
	// ifIntended is the advice in case the removals are intended.
	ifIntended = " or start the watcher with --max-removals=0 until they are removed"
	// stoppedLine limits the rate of log lines about stopped removals.
	stoppedLine = "stopped_removals"
)

// brake stops removals if their number suggests a mistake. It counts them in the objects, so a restarted watcher
// decides the same.
type brake struct {
	limit MaxRemovals
	clock clock.PassiveClock
	// each visits all objects.
	each  func(visit func(*annotated.Object))
	gauge prometheus.Gauge
	log   zerolog.Logger
	lines *process.SampledLog
	// requested returns the keys of an object that the writer was asked to remove.
	requested func(*annotated.Object) []string

	// recent are the removals of the last minute, oldest first.
	recent []removals
	// tallies are the counts by namespace, made at countedAt within took.
	tallies   map[string]tally
	countedAt time.Time
	took      time.Duration
	// everywhere means that the removals of every namespace are stopped.
	everywhere bool
	// stopped is the number of stopped removals.
	stopped int
}

// removals are keys of one namespace that the writer was asked to remove.
type removals struct {
	namespace string
	at        time.Time
	keys      int
}

// tally counts the keys of a namespace: all, the removals of the last minute, and the due removals,
// which the writer was not asked for yet.
type tally struct{ keys, removals, due int }

// exceeds reports whether more than a share of the keys is removed.
func (t tally) exceeds(percent int) bool { return t.removals*100 > t.keys*percent }

// overLimits reports whether removals are due and exceed both limits.
func (t tally) overLimits(limit MaxRemovals) bool {
	return t.due > 0 && t.removals > limit.Keys && t.exceeds(limit.Percent)
}

// check drops the removals of a plan if the namespace, or too many namespaces, remove too many keys.
// It drops all of them, because nothing shows which ones are intended. New removals wait for the next
// count. It returns the time until the next check.
func (b *brake) check(o *annotated.Object, todo *plan.Plan) (again time.Duration) {
	if o == nil || b.limit.Keys == 0 {
		return 0
	}
	unsent := b.unsent(o)
	if unsent == 0 && b.stopped == 0 {
		return 0
	}
	interval := min(max(countInterval, countShare*b.took), removalWindow)
	if now := b.clock.Now(); now.Sub(b.countedAt) >= interval {
		b.count(now)
		b.took = b.clock.Since(now)
	}
	switch {
	case unsent == 0:
		return 0
	case o.SeenAt.After(b.countedAt):
		todo.Remove = nil
		return interval
	case !b.everywhere && !b.tallies[o.Namespace].overLimits(b.limit):
		return 0
	case !b.everywhere:
		todo.Notices = append(todo.Notices, plan.Notice{
			Reason: failure.ReasonTooManyRemovals, Occurrence: o.Namespace,
			Note: "keys that are no longer asked for are kept: namespace " + o.Namespace + " removes too many at once",
		})
	}
	todo.Remove = nil
	return removalWindow
}

// record records that the writer is asked to remove the removable keys of an object.
func (b *brake) record(o *annotated.Object) {
	if keys := b.unsent(o); b.limit.Keys > 0 && keys > 0 { // else repeated requests would pile up
		b.recent = append(b.recent, removals{o.Namespace, b.clock.Now(), keys})
	}
}

// count counts the keys of all objects by namespace.
func (b *brake) count(now time.Time) {
	before := *b
	b.recent = slices.DeleteFunc(b.recent, func(s removals) bool { return now.Sub(s.at) > removalWindow })
	b.tallies, b.countedAt, b.stopped = map[string]tally{}, now, 0
	for _, s := range b.recent {
		t := b.tallies[s.namespace]
		b.tallies[s.namespace] = tally{t.keys + s.keys, t.removals + s.keys, 0}
	}
	b.each(func(o *annotated.Object) {
		// keys counts what the object requests or has.
		if keys, due := max(len(o.Request.Pairs), o.Status.Len()), b.unsent(o); keys > 0 {
			t := b.tallies[o.Namespace]
			b.tallies[o.Namespace] = tally{t.keys + keys, t.removals + due, t.due + due}
		}
	})
	sum, spread := tally{}, 0
	for namespace, t := range b.tallies {
		sum = tally{sum.keys + t.keys, sum.removals + t.removals, sum.due + t.due}
		if t.exceeds(b.limit.Percent) {
			spread++
		}
		if !t.overLimits(b.limit) {
			continue
		}
		b.stopped += t.due
		if !before.tallies[namespace].overLimits(b.limit) {
			b.lines.Line(zerolog.ErrorLevel, stoppedLine).
				Str("namespace", namespace).Int("removals", t.removals).Int("keys", t.keys).
				Msg("refusing to remove so many keys of a namespace at once: check its annotations," + ifIntended)
		}
	}
	b.everywhere = spread >= minSpread && spread*100 > len(b.tallies)*b.limit.Percent && sum.removals > b.limit.Keys
	if b.everywhere {
		b.stopped = sum.due
	}
	b.gauge.Set(float64(b.stopped))
	switch {
	case b.everywhere && !before.everywhere:
		b.log.Error().Int("namespaces", spread).Int("removals", sum.removals).Int("keys", sum.keys).
			Msg("refusing to remove keys in so many namespaces at once: check what dropped their annotations," + ifIntended)
	case b.stopped == 0 && before.stopped > 0:
		b.log.Info().Msg("no removals are stopped any more")
	}
}

// unsent returns the number of removable keys that the writer was not asked to remove yet. A key is ours
// according to managedFields, or to the status without managedFields.
func (b *brake) unsent(o *annotated.Object) (keys int) {
	requested := b.requested(o)
	for _, key := range plan.Orphans(o) {
		owner := o.Owner(key).State
		ours := owner == annotation.Ours || owner == annotation.Unknown && o.Status.Of(key).HasBody()
		if ours && !slices.Contains(requested, key) {
			keys++
		}
	}
	return keys
}
