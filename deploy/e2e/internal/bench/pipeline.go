package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/cluster"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/observe"
)

// errWrong is returned when the system did something else than it should.
var errWrong = errors.New("wrong result")

const (
	// stallTimeout is how long nothing may be filled.
	stallTimeout = 3 * time.Minute
	// lookAfter is how often the programs are looked after meanwhile.
	lookAfter = time.Second
)

// pipeline starts the watcher and waits until all ConfigMaps are filled.
func (b *bench) pipeline(ctx context.Context) (p Pipeline, err error) {
	_, version, err := b.piped.ConfigMaps(ctx)
	if err != nil {
		return p, err
	}
	if b.watch, err = observe.Start(ctx, b.cluster.Metadata, b.piped.Name, version); err != nil {
		return p, err
	}
	b.meter.reset()
	before, err := b.snapshot(ctx)
	if err != nil {
		return p, err
	}
	began := time.Now()
	if err := b.system.StartWatcher(ctx, b.watched(b.piped)); err != nil {
		return p, err
	}
	profiles := b.profile(ctx)
	first, last, err := b.awaitAll(ctx, b.config.N)
	if err != nil {
		return p, err
	}
	after, err := b.snapshot(ctx)
	if err != nil {
		return p, err
	}
	gets, firstGet, lastGet := b.meter.count()
	p = Pipeline{
		Seconds:          last.Sub(began).Seconds(),
		FirstGetSeconds:  firstGet.Sub(began).Seconds(),
		LastGetSeconds:   lastGet.Sub(began).Seconds(),
		FirstFillSeconds: first.Sub(began).Seconds(),
		PerSecond:        rate(b.config.N, last.Sub(began)),
		PerSecondFilling: rate(b.config.N-1, last.Sub(first)),
		Gets:             gets,
		Cost:             before.cost(after, b.config.N),
	}
	b.progress("pipeline: all filled in %s, %.0f/s", last.Sub(began).Round(time.Millisecond), p.PerSecond)
	return p, errors.Join(profiles(), b.verify(ctx, "piped", b.config.N))
}

// watched returns the namespaces for the watcher: the one of a round, and that of
// the Watchers beside it, if there are any.
func (b *bench) watched(round *cluster.Namespace) string {
	if b.crowd == nil {
		return round.Name
	}
	return round.Name + "," + b.crowd.Name
}

// awaitAll waits until so many ConfigMaps have been filled, and returns when the
// first and the last one were.
func (b *bench) awaitAll(ctx context.Context, count int) (first, last time.Time, err error) {
	filled := make(map[string]struct{}, count)
	step := b.step(count)
	for len(filled) < count {
		arrival, err := b.next(ctx)
		if err != nil {
			return first, last, fmt.Errorf("%d of %d ConfigMaps were filled: %w", len(filled), count, err)
		}
		name := arrival.Object.Name
		if _, again := filled[name]; again || !b.filled(arrival.Object) {
			continue
		}
		filled[name] = struct{}{}
		if len(filled) == 1 {
			first = arrival.At
		}
		last = arrival.At
		step()
	}
	return first, last, nil
}

// awaitOne waits until a ConfigMap is filled, and returns when the watch had that.
func (b *bench) awaitOne(ctx context.Context, name string) (time.Time, error) {
	for {
		arrival, err := b.next(ctx)
		if err != nil {
			return time.Time{}, fmt.Errorf("ConfigMap %s was not filled: %w", name, err)
		}
		if arrival.Object.Name == name && b.filled(arrival.Object) {
			return arrival.At, nil
		}
	}
}

// next waits for the next change of a ConfigMap, and no longer than it makes
// sense.
func (b *bench) next(ctx context.Context) (observe.Arrival, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stallTimeout, fmt.Errorf("%w: nothing happens for %s", errWrong, stallTimeout))
	defer cancel()
	for {
		arrival, there, err := b.watch.Next(ctx, lookAfter)
		if there {
			return arrival, nil
		}
		if err := errors.Join(err, b.system.Err()); err != nil {
			return arrival, err
		}
	}
}
