package watcher

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/known"
)

// audit looks at each interval for wants that nothing is on its way for: no
// body, no timer, and published long ago; and for those that could not land, as
// the object holds what a later state of the stream led to. That heals what was
// lost with results or timers, or by bringing the stream back to a backup.
func (p *publisher) audit(ctx context.Context, s *session) error {
	ticker := p.clock.NewTicker(p.pace.audit)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := p.findLost(ctx, s); err != nil && ctx.Err() == nil {
			p.rt.Log.Warn().Err(err).Msg("the audit could not read the stream of requests")
		}
	}
}

func (p *publisher) findLost(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, 3*requestTimeout)
	defer cancel()
	held := p.held()
	done, err := s.fetched(ctx, p.rt.JetStream)
	if err != nil {
		return err
	}
	now := p.clock.Now()
	timers := map[pipeline.Key]struct{}{}
	err = p.client.LoadTimers(ctx, func(e pipeline.Entry) error {
		if _, key, err := pipeline.ParseSubject(e.Subject); err == nil {
			timers[key] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	names := p.index.MarkLost(func(key pipeline.Key, w known.Want) bool {
		if fence := held[key]; fence.Epoch == w.Fence.Epoch && fence.Seq > s.audited {
			return true // the stream was brought back, so that no result would land
		}
		_, pending := timers[key]
		return !pending && done.covers(w) && now.Sub(w.At) > p.pace.audit
	})
	for _, name := range names {
		s.work.Add(name)
	}
	return nil
}

// held returns the fences that the objects have.
func (p *publisher) held() map[pipeline.Key]status.Fence {
	held := map[pipeline.Key]status.Fence{}
	for _, name := range p.objects.Names() {
		o := p.objects.Get(name)
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

// covers tells whether the fetchers have handled a want and all that was due
// at the last audit. What they have not come to is not lost, it waits.
func (p progress) covers(w known.Want) bool {
	return p.idle || w.Fence.Seq <= p.floor && p.before <= p.floor
}

// fetched looks how far the fetchers have come.
func (s *session) fetched(ctx context.Context, js jetstream.JetStream) (progress, error) {
	stream, err := js.Stream(ctx, pipeline.Requests)
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
		before: s.audited,
	}
	s.audited = stream.CachedInfo().State.LastSeq
	return p, nil
}
