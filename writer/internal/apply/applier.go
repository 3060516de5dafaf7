package apply

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/service/logsample"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

const (
	// maxTries is how often an object that changes all the time is patched
	// before its results are put back.
	maxTries = 10
	// conflictPause is the longest pause before a further try.
	conflictPause = 40 * time.Millisecond
	// applyTimeout bounds all requests for one batch. It is well below the
	// time after which the message would be delivered again.
	applyTimeout = 22 * time.Second
)

// Options of an Applier.
type Options struct {
	// Client makes the requests.
	Client *Client
	// Recorder writes the Events.
	Recorder Recorder
	// View reads objects.
	View judge.Viewer
	// Judge decides.
	Judge judge.Judge
	// Gate knows whether the API server is there.
	Gate *Gate
	// Metrics are moved by what is applied.
	Metrics *Metrics
	// Log takes one line per outcome.
	Log zerolog.Logger
	// Clock tells time.
	Clock clock.Clock
}

// Applier applies results to ConfigMaps.
type Applier struct {
	Options
	memory  memory
	confirm confirmations
	speaker *speaker
	lines   *logsample.Log
}

// New returns an applier.
func New(o Options) (*Applier, error) {
	if o.Client == nil || o.Recorder == nil || o.View.Grammar == nil || o.View.Selector == nil || o.Gate == nil || o.Metrics == nil || o.Clock == nil {
		return nil, errors.New("make applier: a dependency is missing")
	}
	return &Applier{
		Options: o, memory: newMemory(o.Clock), confirm: newConfirmations(o.Clock),
		speaker: newSpeaker(o.Recorder, o.Clock, o.Metrics), lines: logsample.New(o.Log),
	}, nil
}

// Apply applies results, all of one ConfigMap, and returns what became of
// each. Only one call at a time may work on an object.
func (a *Applier) Apply(ctx context.Context, ref Ref, items []judge.Item) []Outcome {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	a.Metrics.batch.Observe(float64(len(items)))
	if !a.Gate.Open() {
		return all(len(items), Outcome{Retry: Soon})
	}
	began := a.Clock.Now()
	outcomes := a.apply(ctx, ref, items)
	a.Metrics.seconds.Observe(a.Clock.Since(began).Seconds())
	for i, o := range outcomes {
		outcomes[i].Together = len(items)
		if o.Retry == Done {
			a.settled(o.Verdict, items[i].Result)
		}
	}
	return outcomes
}

// apply carries out plans until one is accepted.
func (a *Applier) apply(ctx context.Context, ref Ref, items []judge.Item) []Outcome {
	t := &task{Applier: a, ref: ref, items: items}
	t.start()
	for range maxTries {
		outcomes, done := t.try(ctx)
		if done {
			return outcomes
		}
		if t.known {
			continue
		}
		select { // somebody else writes this object, too
		case <-ctx.Done():
			return all(len(items), Outcome{Retry: Soon})
		case <-a.Clock.After(rand.N(conflictPause)):
		}
	}
	a.Metrics.exhausted.Inc()
	a.lines.Line(zerolog.WarnLevel, "contention").Str("namespace", ref.Namespace).Str("configmap", ref.Name).
		Msg("object changes faster than it can be patched; trying again later")
	return all(len(items), Outcome{Retry: Soon})
}

// apart applies items one by one, so that one which is refused does not hold
// up the others.
func (a *Applier) apart(ctx context.Context, ref Ref, items []judge.Item) []Outcome {
	outcomes := make([]Outcome, 0, len(items))
	for _, item := range items {
		outcomes = append(outcomes, a.apply(ctx, ref, []judge.Item{item})...)
	}
	return outcomes
}
