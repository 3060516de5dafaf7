// Package audit finds wants that nothing is under way for.
package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Deps are what an Auditor works with.
type Deps struct {
	Client  *pipeline.Client
	Index   *wantindex.Index
	Objects *informer.Informer
	Clock   clock.WithTicker
	Log     zerolog.Logger
}

// Auditor looks at each interval for wants that nothing is on its way for: no
// body, no timer, and published long ago; and for those that could not land, as
// the object holds what a later state of the stream led to. That heals what was
// lost with results or timers, or by bringing the stream back to a backup.
type Auditor struct {
	interval time.Duration
	deps     Deps
	last     uint64 // sequence of the stream at the last audit
}

// New returns an auditor that does not run.
func New(interval time.Duration, d Deps) *Auditor { return &Auditor{interval: interval, deps: d} }

// Run calls enqueue for the objects of such wants until ctx is done.
func (a *Auditor) Run(ctx context.Context, enqueue func(types.NamespacedName)) {
	ticker := a.deps.Clock.NewTicker(a.interval)
	defer ticker.Stop()
	a.last = a.deps.Index.Newest()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := a.findLost(ctx, enqueue); err != nil && ctx.Err() == nil {
			a.deps.Log.Warn().Err(err).Msg("the audit could not read the stream of requests")
		}
	}
}

func (a *Auditor) findLost(ctx context.Context, enqueue func(types.NamespacedName)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	held := a.held()
	done, err := a.progress(ctx)
	if err != nil {
		return err
	}
	now := a.deps.Clock.Now()
	timers := map[pipeline.Key]struct{}{}
	err = a.deps.Client.LoadTimers(ctx, func(e pipeline.Message) error {
		if _, key, err := pipeline.ParseSubject(e.Subject); err == nil {
			timers[key] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	names := a.deps.Index.MarkLost(func(key pipeline.Key, w wantindex.Want) bool {
		if fence := held[key]; fence.Epoch == w.Fence.Epoch && fence.Seq > done.before {
			return true // the stream was brought back, so that no result would land
		}
		_, pending := timers[key]
		return !pending && done.covers(w) && now.Sub(w.At) > a.interval
	})
	for _, name := range names {
		enqueue(name)
	}
	return nil
}

// held returns the fences that the objects have.
func (a *Auditor) held() map[pipeline.Key]status.Fence {
	held := map[pipeline.Key]status.Fence{}
	for _, name := range a.deps.Objects.Names() {
		o := a.deps.Objects.Get(name)
		if o == nil {
			continue
		}
		for key, entry := range o.Status.Keys {
			if !entry.Copied(o.UID) {
				held[pipeline.Key{Namespace: o.Namespace, Name: o.Name, Key: key}] = entry.Fence
			}
		}
	}
	return held
}

// progress is how far the fetchers have come.
type progress struct {
	// idle: nothing waits for them.
	idle bool
	// floor is the sequence up to which they have handled everything.
	floor uint64
	// before is the last sequence of the stream at the audit before this one.
	before uint64
}

// covers reports whether the fetchers have handled a want and all that was due
// at the last audit. What they have not come to is not lost, it waits.
func (p progress) covers(w wantindex.Want) bool {
	return p.idle || w.Fence.Seq <= p.floor && p.before <= p.floor
}

func (a *Auditor) progress(ctx context.Context) (progress, error) {
	stream, err := a.deps.Client.JetStream().Stream(ctx, pipeline.Requests)
	if err != nil {
		return progress{}, fmt.Errorf("look up stream %s: %w", pipeline.Requests, err)
	}
	consumer, err := stream.Consumer(ctx, pipeline.FetcherConsumer)
	if err != nil {
		return progress{}, fmt.Errorf("look up consumer %s: %w", pipeline.FetcherConsumer, err)
	}
	info := consumer.CachedInfo()
	p := progress{
		idle:   info.NumPending == 0 && info.NumAckPending == 0,
		floor:  info.AckFloor.Stream,
		before: a.last,
	}
	a.last = stream.CachedInfo().State.LastSeq
	return p, nil
}
