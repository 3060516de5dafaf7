// Package audit finds what was lost: keys that do not hold what is asked for
// while nothing is under way for them, and keys that nothing will refresh.
package audit

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/logfield"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	// perNamespace is how many keys of one namespace an audit asks for that it asked
	// for before, in vain.
	perNamespace = 500
	// refreshedAtOnce is how many held keys an audit looks at the timers of, or a
	// tenth of them if that is more.
	refreshedAtOnce = 100_000
	// looks is how often in an interval it is looked at what was refused.
	looks = 8
	// requestTimeout bounds one request to the broker. The audit as a whole has
	// no bound: it goes on for as long as each request gets a response.
	requestTimeout = 10 * time.Second
)

// Config of an Auditor.
type Config struct {
	// Interval between audits. All other times follow from it: with the default
	// of 2 min a want is left alone for its first 30 s, a timer counts as lost
	// when it is overdue by 1 min, and a message that was delivered counts as in
	// work for 5 min.
	Interval time.Duration
}

// young is how long nothing is concluded about a want or a timer: what it led to
// may be on its way to the watch.
func (c Config) young() time.Duration { return c.Interval / 4 }

// overdue is how late a timer may be. The server loses one that it could not
// publish when it fired, and keeps it in the stream.
func (c Config) overdue() time.Duration { return c.Interval / 2 }

// inWork is how long a delivered message may be worked on: longer than it takes
// to be delivered until it becomes a dead letter.
func (c Config) inWork() time.Duration { return c.Interval * 5 / 2 }

// pause returns how long a want waits that was asked for again so many times in
// a row while nothing about its object changed.
func (c Config) pause(asks uint8) time.Duration {
	switch asks {
	case 0:
		return c.young()
	case 1, 2:
		return c.Interval << (asks - 1)
	default:
		return min(c.Interval<<(min(asks, 8)-1), 5*c.Interval)
	}
}

// Objects are the annotated ConfigMaps.
type Objects interface {
	// Get returns an object, or nil when it is gone or does not concern us.
	Get(name types.NamespacedName) *annotated.Object
}

// Deps are what an Auditor works with.
type Deps struct {
	Client  *pipeline.Client
	Index   *wantindex.Index
	Objects Objects
	// Clock is that of the broker, which has stamped all that is compared with it.
	Clock   clock.WithTicker
	Log     zerolog.Logger
	Metrics *Metrics
}

// Auditor audits at each interval.
type Auditor struct {
	config Config
	deps   Deps
	// asked are the keys that do not hold what is asked for.
	asked map[pipeline.Key]asked
	// notLanded are the digests of the bodies that the last audit has seen
	// fetched for keys that hold another one.
	notLanded map[pipeline.Key]string
	// probed is when a key was last asked for before its time to see whether a
	// refusal still holds.
	probed map[refusal]time.Time
	// refreshing is how many wants had an interval at the last audit.
	refreshing int
	round      uint32
}

// asked is how often a key was asked for again, what its object was like and what
// its status named as the reason, and whether an audit since has waited for what a
// refresh had led to.
type asked struct {
	times  uint8
	waited bool
	object string
	reason string
}

// finding is what is found of a key that is asked for now.
func (a asked) finding() wantindex.Finding {
	if a.times > 0 {
		return wantindex.Refused
	}
	return wantindex.BodyLost
}

// New returns an auditor that does not run.
func New(c Config, d Deps) *Auditor {
	return &Auditor{config: c, deps: d, asked: map[pipeline.Key]asked{}, probed: map[refusal]time.Time{}}
}

// Run audits at each interval until ctx is done, and follows up what was refused
// more often. It records findings in the index and calls enqueue for their objects.
func (a *Auditor) Run(ctx context.Context, enqueue func(types.NamespacedName)) {
	ticker := a.deps.Clock.NewTicker(a.config.Interval / looks)
	defer ticker.Stop()
	for look := 1; ; look++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		do := a.FollowUp
		if look%looks == 0 {
			do = a.Audit
		}
		if err := do(ctx, enqueue); err != nil && ctx.Err() == nil {
			a.deps.Log.Warn().Err(err).Msg("the audit could not read the streams")
		}
	}
}

// Audit audits once.
func (a *Auditor) Audit(ctx context.Context, enqueue func(types.NamespacedName)) error {
	began := a.deps.Clock.Now()
	a.round++
	e, err := a.gather(ctx)
	if err != nil {
		return err
	}
	s := a.sort(e)
	for _, name := range s.unasked {
		enqueue(name)
	}
	asks, err := a.askAgain(ctx, e, s.asks, enqueue)
	if err != nil {
		return err
	}
	timers, err := a.restart(ctx, e, s.refreshed)
	if err != nil {
		return err
	}
	a.deps.Metrics.stale.Set(float64(s.stale + e.stale))
	for _, key := range s.behind {
		if timers[key] == wantindex.NothingLost {
			timers[key] = wantindex.StreamBehind
		}
	}
	a.record(asks, enqueue)
	a.record(timers, enqueue)
	took := a.deps.Clock.Since(began)
	a.deps.Metrics.took.Observe(took.Seconds())
	if len(asks)+len(timers) > 0 {
		logfield.Duration(a.deps.Log.Info().Int("not_held", len(asks)).Int("refreshes", len(timers)), "took", took).
			Msg("the audit found keys that nothing is under way for")
	}
	return nil
}

// FollowUp looks at the keys that were not held at the last audit: whether what
// they were refused for has gone.
func (a *Auditor) FollowUp(ctx context.Context, enqueue func(types.NamespacedName)) error {
	if len(a.asked) == 0 {
		return nil
	}
	e, err := a.gather(ctx)
	if err != nil {
		return err
	}
	asks, err := a.askAgain(ctx, e, a.sortAsked(e), enqueue)
	if err != nil {
		return err
	}
	a.record(asks, enqueue)
	return nil
}

// record notes findings in the index, so that the plans of the objects have them.
func (a *Auditor) record(all map[pipeline.Key]wantindex.Finding, enqueue func(types.NamespacedName)) {
	for key, finding := range all {
		a.deps.Index.Update(key, func(w *wantindex.Want) { w.Finding = finding })
		a.deps.Metrics.lost.WithLabelValues(string(finding)).Inc()
		enqueue(wantindex.ObjectOf(key))
	}
}
