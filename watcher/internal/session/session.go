package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// queueName is the name of the queue in metrics.
const queueName = "watcher"

// session publishes wants based on one reading of the stream.
type session struct {
	config Config
	deps   Deps
	epoch  int64
	// first is the stream's first sequence when all wants were last found in it.
	first uint64
	queue *queue.Queue
	// failures logs errors of single objects, once a minute, so that an outage does not flood the log.
	failures rate.Sometimes
	// wakeUp gets a value when an object is deferred.
	wakeUp chan struct{}
}

// begin creates missing streams and reads the wants.
func (r *Runner) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestTimeout)
	defer cancel()
	limited, cancelEpoch := context.WithTimeout(ctx, requestTimeout)
	defer cancelEpoch()
	epoch, err := r.deps.Epoch(limited)
	if err != nil {
		return nil, err
	}
	wants, err := r.loadWants(ctx, epoch)
	if err != nil {
		return nil, err
	}
	r.deps.Index.Reset(epoch, wants)
	r.deps.Backlog.Reset()
	r.deps.Metrics.sessions.Inc()
	return &session{
		config:   r.config,
		deps:     r.deps,
		epoch:    epoch,
		queue:    queue.New(queueName, r.deps.Metrics.queue),
		failures: rate.Sometimes{Interval: time.Minute},
		wakeUp:   make(chan struct{}, 1),
	}, nil
}

// loadWants returns the wants in scope. It includes wants that this installation published before its scope
// was narrowed, to retract them.
func (r *Runner) loadWants(ctx context.Context, epoch int64) (map[pipeline.Key]wantindex.Want, error) {
	wants, outOfScope := map[pipeline.Key]wantindex.Want{}, 0
	err := r.deps.Client.LoadWants(ctx, func(e pipeline.Message) error {
		_, key, err := pipeline.ParseSubject(e.Subject)
		if err != nil {
			return nil //nolint:nilerr // not a want that a watcher could have published
		}
		w, err := pipeline.DecodeWant(key, e.Data)
		switch {
		case err == nil && w == nil: // a tombstone
		case !r.config.InScope(key.Namespace) &&
			(r.config.Installation == "" || w.GetInstallation() != r.config.Installation):
			outOfScope++
		case err != nil:
			wants[key] = wantindex.Unreadable(epoch, e.Sequence, e.Time)
		default:
			wants[key] = wantindex.FromWant(w, epoch, e.Sequence, e.Time)
		}
		return nil
	})
	if err == nil {
		r.noteOutOfScope(outOfScope)
	}
	return wants, err
}

// noteOutOfScope logs the number of ignored wants when it changes.
func (r *Runner) noteOutOfScope(wants int) {
	r.deps.Metrics.outOfScope.Set(float64(wants))
	if wants > 0 && wants != r.outOfScope {
		r.deps.Log.Warn().Int("out_of_scope", wants).
			Msg("ignoring wants of other installations in unwatched namespaces, which are fetched until they are purged")
	}
	r.outOfScope = wants
}

// run handles all objects, then each changed one. Its error is not nil unless ctx is done.
func (s *session) run(ctx context.Context) error {
	s.enqueueAll()
	group, groupCtx := errgroup.WithContext(ctx)
	// Work in progress is finished, because otherwise a want would lack its Event, or a tombstone its
	// removal. It is abandoned only if the connection is broken.
	workCtx, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(groupCtx, func() {
		if errors.Is(context.Cause(groupCtx), errDisconnected) {
			abandon()
		}
	})()
	group.Go(func() error {
		s.queue.Run(groupCtx, s.config.Workers, func(name types.NamespacedName) { s.handle(workCtx, name) })
		return nil
	})
	group.Go(func() error { return s.check(groupCtx) })
	group.Go(func() error {
		s.release(groupCtx)
		return nil
	})
	group.Go(func() error {
		s.deps.Audit(groupCtx, func(name types.NamespacedName) { s.queue.Add(name) })
		return nil
	})
	return group.Wait()
}

// enqueueAll enqueues all objects, and deleted objects that still have wants.
func (s *session) enqueueAll() {
	objects, wanted := s.deps.Names(), s.deps.Index.Names()
	s.deps.Log.Info().Int("objects", len(objects)).Int("wanted", len(wanted)).Msg("publishing wants")
	for _, name := range objects {
		s.queue.Add(name)
	}
	for _, name := range wanted {
		s.queue.Add(name)
	}
}

// handle reconciles an object and schedules the next time.
func (s *session) handle(ctx context.Context, name types.NamespacedName) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	again, err := s.deps.Reconcile(ctx, name)
	if again > 0 {
		s.queue.Urgent(name)
		s.queue.AddAfter(name, again)
	}
	switch {
	case err == nil:
		s.queue.Forget(name)
		return
	case ctx.Err() != nil && s.queue.ShuttingDown():
		return
	case errors.Is(err, reconcile.ErrBacklogFull):
		s.queue.Defer(name)
		s.wake()
		return
	case errors.Is(err, pipeline.ErrSuperseded): // the index has the newer want now
		s.queue.Urgent(name)
	default:
		s.failures.Do(func() {
			process.LogObject(s.deps.Log.Warn().Err(err), name.Namespace, name.Name).Msg("reconcile failed, retrying")
		})
	}
	s.queue.AddRateLimited(name)
}

// wake makes release run once more.
func (s *session) wake() {
	select {
	case s.wakeUp <- struct{}{}:
	default:
	}
}

// releasePause and maxReleasePause are the first and the maximum pause between checks for delivered
// messages. The pause grows while fetchers receive none.
const (
	releasePause    = 50 * time.Millisecond
	maxReleasePause = time.Second
)

// release enqueues deferred objects when there is room for their messages.
func (s *session) release(ctx context.Context) {
	for pause := releasePause; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.wakeUp:
		}
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		room, err := s.deps.Backlog.Refresh(limited)
		cancel()
		if pause = min(2*pause, maxReleasePause); err == nil && room > 0 {
			pause = releasePause
		}
		if s.queue.Release(room) {
			s.wake()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.deps.Clock.After(pause):
		}
	}
}

// purgeInterval is the interval between checks for purged wants.
const purgeInterval = 2 * time.Second

// check ends the session when the stream may have changed.
func (s *session) check(ctx context.Context) error {
	ticker := s.deps.Clock.NewTicker(s.config.CheckInterval)
	defer ticker.Stop()
	purges := s.deps.Clock.NewTicker(purgeInterval)
	defer purges.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-purges.C():
			if err := s.verifyOldest(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ticker.C():
			if err := s.verifyStream(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// verifyStream returns an error if the stream is not the one that the session read. A broker that does
// not respond is no error.
func (s *session) verifyStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	epoch, err := s.deps.Epoch(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, pipeline.ErrIncompatible):
		return err
	case err != nil:
		return nil // publishes fail too, and are retried
	case epoch != s.epoch:
		return fmt.Errorf("%w: it was recreated", errReload)
	}
	return s.verifyOldest(ctx)
}

// verifyOldest returns an error if the oldest want was purged. It runs more often than verifyStream,
// because any client that may publish timers can purge the stream by a header (Nats-Rollup). It scans
// the index only if the first sequence has changed.
func (s *session) verifyOldest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, first, err := pipeline.Epoch(ctx, s.deps.Client.JetStream())
	if err != nil || first == s.first {
		return nil
	}
	key, seq, found := s.deps.Index.Oldest()
	if !found || seq >= first {
		s.first = first
		return nil
	}
	// The oldest want is gone, or has just been replaced.
	if _, _, err := s.deps.Client.LastWant(ctx, key); errors.Is(err, pipeline.ErrNoMessage) {
		s.deps.Metrics.purges.Inc()
		return fmt.Errorf("%w: it was purged", errReload)
	}
	return nil
}
