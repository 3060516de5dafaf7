package watcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/known"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

const (
	// requestTimeout bounds a round of requests to the broker.
	requestTimeout = 10 * time.Second
	// checkInterval is how often the streams are looked at: deleted, created
	// anew, purged?
	checkInterval = 15 * time.Second
	// sessionPause is the longest pause between tries to begin a session.
	sessionPause = 5 * time.Second
)

// publish keeps the stream of requests in line with the objects until ctx is
// done. Each session begins with reading the stream; it ends when the stream
// turns out not to be the one that was read.
func (p *publisher) publish(ctx context.Context) error {
	pause := retryFirst
	for said := ""; ctx.Err() == nil; {
		session, err := p.begin(ctx)
		if errors.Is(err, pipeline.ErrIncompatible) {
			return err
		}
		if err == nil {
			said, pause = "", retryFirst
			p.streams.Ready()
			err = p.run(ctx, session)
		}
		if ctx.Err() != nil {
			break
		}
		p.streams.NotReady("the streams cannot be used")
		if text := err.Error(); text != said {
			said = text
			p.rt.Log.Warn().Err(err).Msg("reading the stream of requests anew")
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, sessionPause)
	}
	return nil
}

// session is one reading of the stream and what is published on top of it.
type session struct {
	epoch      int64
	index      *known.Index
	reconciler *reconcile.Reconciler
	work       *work
}

// begin makes sure that the streams exist and reads the wants in them.
func (p *publisher) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestTimeout)
	defer cancel()
	epoch, err := p.epoch(ctx)
	if err != nil {
		return nil, err
	}
	wants := map[pipeline.Key]known.Want{}
	err = p.client.LoadWants(ctx, func(e pipeline.Entry) error {
		_, key, err := pipeline.ParseSubject(e.Subject)
		if err != nil || !p.config.watches(key.Namespace) {
			return nil //nolint:nilerr // not a want that this watcher could have published
		}
		w, err := pipeline.DecodeWant(key, e.Data)
		switch {
		case err != nil: // garbage: known, and different from anything wanted
			wants[key] = known.Want{Fence: known.Fence(epoch, e.Sequence), At: e.Time}
		case w != nil:
			wants[key] = known.Of(w, e.Sequence, e.Time)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := &session{epoch: epoch, index: known.NewIndex(), work: newWork()}
	s.index.Reset(wants)
	s.reconciler = reconcile.New(reconcile.Config{
		Objects: p.objects, Index: s.index, Client: p.client, Recorder: p.recorder, Epoch: epoch,
		Coalesce: p.config.Coalesce, Repeat: p.config.Audit, Clock: p.clock, Log: p.rt.Log, Metrics: p.metrics,
	})
	return s, nil
}

// epoch returns the epoch of the stream of requests, created if need be.
func (p *publisher) epoch(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if p.config.ManageStreams {
		return pipeline.Ensure(ctx, p.rt.JetStream, p.config.Streams)
	}
	epoch, _, err := pipeline.Epoch(ctx, p.rt.JetStream)
	return epoch, err
}

// run works on all objects, and from then on on those that change.
func (p *publisher) run(ctx context.Context, s *session) error {
	p.feed.session.Store(s.work)
	defer p.feed.session.Store(nil)
	for _, name := range p.objects.Names() {
		s.work.Add(name)
	}
	for _, name := range s.index.Names() { // objects that are gone
		s.work.Add(name)
	}
	p.rt.Log.Info().Int("wants", len(s.index.Names())).Int("objects", len(p.objects.Names())).Msg("publishing what is wanted")

	group, groupCtx := errgroup.WithContext(ctx)
	for range p.config.Workers {
		group.Go(func() error {
			// What was begun is finished: a want without its Event, or a
			// tombstone without its removal, would have to be found again.
			for p.next(context.WithoutCancel(groupCtx), s) {
			}
			return nil
		})
	}
	group.Go(func() error {
		<-groupCtx.Done()
		s.work.ShutDown()
		return nil
	})
	group.Go(func() error { return p.check(groupCtx, s) })
	group.Go(func() error { return p.audit(groupCtx, s) })
	return group.Wait()
}

// next works on the next object; false: there will be none.
func (p *publisher) next(ctx context.Context, s *session) bool {
	name, shutdown := s.work.Get()
	if shutdown || s.work.ShuttingDown() {
		return false
	}
	defer s.work.Done(name)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	again, err := s.reconciler.Reconcile(ctx, name)
	switch {
	case errors.Is(err, pipeline.ErrSuperseded): // the next look knows better
		s.work.order.Urgent(name)
		s.work.AddRateLimited(name)
	case err != nil:
		p.logFailure(name, err, s.work.NumRequeues(name))
		s.work.AddRateLimited(name)
	default:
		s.work.Forget(name)
		if again > 0 {
			s.work.order.Urgent(name)
			s.work.AddAfter(name, again)
		}
	}
	return true
}

// logFailure logs the first failure of an object in a row, and then every
// tenth, so that an outage with a backlog does not flood the log.
func (p *publisher) logFailure(name types.NamespacedName, err error, failures int) {
	if failures%10 == 0 {
		p.rt.Log.Warn().Err(err).Str("namespace", name.Namespace).Str("configmap", name.Name).Msg("trying again")
	}
}

// check ends the session when the stream is not the one that was read.
func (p *publisher) check(ctx context.Context, s *session) error {
	reconnected := p.rt.NATS.StatusChanged(nats.CONNECTED)
	defer p.rt.NATS.RemoveStatusListener(reconnected)
	ticker := p.clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-reconnected:
		}
		if err := p.unchanged(ctx, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// unchanged compares the stream with what was read. A broker that is away is
// not a change.
func (p *publisher) unchanged(ctx context.Context, s *session) error {
	epoch, err := p.epoch(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, pipeline.ErrIncompatible):
		return err
	case err != nil:
		return nil //nolint:nilerr // publishing fails too, and is tried again
	case epoch != s.epoch:
		return fmt.Errorf("%w: it was created anew", errReload)
	}
	_, first, err := pipeline.Epoch(ctx, p.rt.JetStream)
	if err == nil && first > s.index.First() && s.index.First() > 0 {
		return fmt.Errorf("%w: it was purged", errReload)
	}
	return nil
}

// audit looks at each interval for wants that nothing is on its way for: no
// body, no timer, and published long ago. That heals what was lost with
// results or timers.
func (p *publisher) audit(ctx context.Context, s *session) error {
	ticker := p.clock.NewTicker(p.config.Audit)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := p.findLost(ctx, s); err != nil && ctx.Err() == nil {
			p.rt.Log.Warn().Err(err).Msg("the audit could not read the timers")
		}
	}
}

func (p *publisher) findLost(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, 3*requestTimeout)
	defer cancel()
	now := p.clock.Now()
	timers := map[pipeline.Key]struct{}{}
	err := p.client.LoadTimers(ctx, func(e pipeline.Entry) error {
		if _, key, err := pipeline.ParseSubject(e.Subject); err == nil {
			timers[key] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	names := s.index.MarkLost(func(key pipeline.Key, w known.Want) bool {
		_, pending := timers[key]
		return !pending && now.Sub(w.At) > p.config.Audit
	})
	for _, name := range names {
		s.work.Add(name)
	}
	return nil
}
