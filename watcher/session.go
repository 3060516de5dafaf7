package watcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/known"
)

// session is what is published on top of one reading of the stream.
type session struct {
	epoch    int64
	work     *work
	failures failures
	audited  uint64 // last sequence of the stream at the last audit
}

// begin makes sure that the streams exist and reads the wants in them.
func (p *publisher) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestTimeout)
	defer cancel()
	epoch, err := p.epoch(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{epoch: epoch, failures: failures{log: p.rt.Log, clock: p.clock}}
	wants := map[pipeline.Key]known.Want{}
	err = p.client.LoadWants(ctx, func(e pipeline.Entry) error {
		s.audited = max(s.audited, e.Sequence)
		_, key, err := pipeline.ParseSubject(e.Subject)
		if err != nil || !p.config.watches(key.Namespace) {
			return nil //nolint:nilerr // not a want that this watcher could have published
		}
		w, err := pipeline.DecodeWant(key, e.Data)
		switch {
		case err != nil:
			wants[key] = known.Unreadable(epoch, e.Sequence, e.Time)
		case w != nil:
			wants[key] = known.Of(w, epoch, e.Sequence, e.Time)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.index.Reset(epoch, wants)
	s.work = newWork(p.metrics.queue)
	p.metrics.sessions.Inc()
	return s, nil
}

// run works on all objects, and after that on those that change. What it
// returns is never nil before ctx is done.
func (p *publisher) run(ctx context.Context, s *session) error {
	p.feed.session.Store(s.work)
	defer p.metrics.queue.Reset()
	defer p.feed.session.Store(nil)
	objects, wanted := p.objects.Names(), p.index.Names()
	p.rt.Log.Info().Int("objects", len(objects)).Int("wanted", len(wanted)).Msg("publishing what is wanted")
	for _, name := range objects {
		s.work.Add(name)
	}
	for _, name := range wanted { // objects that are gone
		s.work.Add(name)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	// What was begun is finished: a want without its Event, or a tombstone
	// without its removal, would have to be found again. Only for answers that
	// a broken connection will not bring nobody waits.
	workCtx, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(groupCtx, func() {
		if errors.Is(context.Cause(groupCtx), errDisconnected) {
			abandon()
		}
	})()
	for range p.config.Workers {
		group.Go(func() error {
			for p.next(workCtx, s) {
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
	again, err := p.reconciler.Reconcile(ctx, name)
	if again > 0 {
		s.work.order.Urgent(name)
		s.work.AddAfter(name, again)
	}
	switch {
	case err == nil:
		s.work.Forget(name)
		return true
	case ctx.Err() != nil && s.work.ShuttingDown():
		return false
	case errors.Is(err, pipeline.ErrSuperseded): // the next look knows better
		s.work.order.Urgent(name)
	default:
		s.failures.add(name, err)
	}
	s.work.AddRateLimited(name)
	return true
}

// failures logs what goes wrong with single objects: the first at once, then
// one line a minute, so that an outage with a backlog does not flood the log.
type failures struct {
	log   zerolog.Logger
	clock clock.PassiveClock

	mu      sync.Mutex
	last    time.Time
	skipped int
}

const failureInterval = time.Minute

func (f *failures) add(name types.NamespacedName, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.last.IsZero() && f.clock.Since(f.last) < failureInterval {
		f.skipped++
		return
	}
	f.log.Warn().Err(err).Str("namespace", name.Namespace).Str("configmap", name.Name).Int("more", f.skipped).Msg("trying again")
	f.last, f.skipped = f.clock.Now(), 0
}
