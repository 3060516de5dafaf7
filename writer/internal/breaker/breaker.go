// Package breaker is the circuit breaker of the writer: it holds work back while
// the Kubernetes API server is unavailable, and finds out when it is back.
package breaker

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/process"
)

const (
	// tripAfter is how many requests in a row must fail before the API server
	// counts as unavailable: one object may fail for reasons of its own.
	tripAfter = 3
	// probeFirst and probeMax bound the pause before the API server is asked
	// whether it is back.
	probeFirst = 250 * time.Millisecond
	probeMax   = 2 * time.Second
	// trial is how long work may pass because of a probe alone.
	trial = 5 * time.Second
	// waitMax is how long work is held back before its messages are returned.
	waitMax = 10 * time.Second
	// denialLasts is how long a denial counts that is not repeated.
	denialLasts = 10 * time.Minute
)

// Breaker holds work back while the API server is unavailable. Each change is
// logged once and shown in the health of the process.
type Breaker struct {
	probe func(context.Context) error
	clock clock.WithTicker
	log   zerolog.Logger
	part  *process.Part

	mu       sync.Mutex
	pass     chan struct{}        // closed while work may pass
	held     chan struct{}        // closed while it may not
	up       bool                 // as it was logged
	failures int                  // in a row
	after    time.Duration        // for how long the API server asked for no requests
	denied   map[string]time.Time // when, by namespace
	servedAt time.Time            // when a request for any namespace was
	ended    chan struct{}        // closed when Run has returned
}

// Deps is what a Breaker works with.
type Deps struct {
	// Probe asks the API server whether it is there; nil error: it is.
	Probe func(context.Context) error
	Clock clock.WithTicker
	// Log has a line for each change.
	Log zerolog.Logger
	// Part is that of the API server in the health of the process; nil: none.
	Part *process.Part
}

// New returns a breaker that lets work pass.
func New(d Deps) *Breaker {
	b := &Breaker{
		probe: d.Probe, clock: d.Clock, log: d.Log, part: d.Part, up: true, denied: map[string]time.Time{},
		pass: make(chan struct{}), held: make(chan struct{}), ended: make(chan struct{}),
	}
	close(b.pass)
	return b
}

// Pass reports whether work may begin. While the API server is unavailable it
// waits for a while for it to come back, until draining is closed.
func (b *Breaker) Pass(draining <-chan struct{}) bool {
	b.mu.Lock()
	pass := b.pass
	b.mu.Unlock()
	select {
	case <-pass:
		return true
	default:
	}
	timer := b.clock.NewTimer(waitMax)
	defer timer.Stop()
	select {
	case <-pass:
		return true
	case <-b.ended:
	case <-draining:
	case <-timer.C():
	}
	return false
}

// Allows reports whether work may begin now.
func (b *Breaker) Allows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return isClosed(b.pass)
}

// Denied returns the number of namespaces in which the writer was refused for
// lack of a permission, and not served since.
func (b *Breaker) Denied() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.denied)
}

// Available reports whether the API server counts as available.
func (b *Breaker) Available() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.up
}

// Success notes that the API server has served a request for a namespace.
func (b *Breaker) Success(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servedAt = b.clock.Now()
	b.restore()
	if _, denied := b.denied[namespace]; denied {
		delete(b.denied, namespace)
		b.permitted()
	}
}

// restore notes that the API server is available. The caller holds the lock.
func (b *Breaker) restore() {
	b.failures, b.after = 0, 0
	b.allow()
	if !b.up {
		b.up = true
		b.log.Info().Msg("Kubernetes API server serves us again")
	}
	b.part.Ready()
}

// permitted notes that one denial less holds. The caller holds the lock.
func (b *Breaker) permitted() {
	if len(b.denied) > 0 {
		return
	}
	b.log.Info().Msg("the writer has its permissions again")
	if b.up {
		b.part.Ready()
	}
}

// Failure notes that it did not, and for how long it asks for no requests.
func (b *Breaker) Failure(err error, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	b.after = max(b.after, after)
	if b.failures < tripAfter && after == 0 && b.up {
		return
	}
	if b.up {
		b.up = false
		b.log.Warn().Err(err).Msg("Kubernetes API server does not serve us; results wait until it does")
		b.part.NotReady("the Kubernetes API server does not answer")
	}
	b.hold()
}

// Deny notes that the API server does not permit what the writer does in a
// namespace. It may in others, so work goes on; only while no namespace is served
// the process is not ready.
func (b *Breaker) Deny(namespace string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.denied) == 0 {
		b.log.Error().Err(err).Msg("the writer lacks a permission; grant get and patch of configmaps to its service account")
	}
	b.denied[namespace] = b.clock.Now()
	if b.clock.Since(b.servedAt) >= denialLasts {
		b.part.NotReady("the Kubernetes API server refuses the writer")
	}
}

// Run probes the API server while it is unavailable, until ctx is done.
func (b *Breaker) Run(ctx context.Context) {
	defer close(b.ended)
	if err := b.probe(ctx); err == nil {
		b.served()
	} else if ctx.Err() == nil {
		b.Failure(err, probeFirst)
	}
	ticker := b.clock.NewTicker(denialLasts)
	defer ticker.Stop()
	for {
		b.mu.Lock()
		held := b.held
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			b.expire()
		case <-held:
			b.awaitRecovery(ctx)
		}
	}
}

// served is Success without a namespace.
func (b *Breaker) served() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restore()
}

// expire removes denials that were not repeated: what was denied comes back,
// unless another replica was permitted to do it.
func (b *Breaker) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.denied)
	maps.DeleteFunc(b.denied, func(_ string, at time.Time) bool { return b.clock.Since(at) >= denialLasts })
	if len(b.denied) < before {
		b.permitted()
	}
}

// awaitRecovery probes until there is an answer, and then lets work try.
func (b *Breaker) awaitRecovery(ctx context.Context) {
	for wait := probeFirst; ; wait = min(2*wait, probeMax) {
		b.mu.Lock()
		pause := max(wait, b.after)
		b.after = 0
		b.mu.Unlock()
		if !b.sleep(ctx, pause) {
			return
		}
		if b.probe(ctx) == nil {
			break
		}
	}
	b.mu.Lock()
	b.allow()
	held := b.held
	b.mu.Unlock()
	timer := b.clock.NewTimer(trial)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-held: // the trial has failed
	case <-timer.C():
		if b.Allows() {
			b.served()
		}
	}
}

func (b *Breaker) sleep(ctx context.Context, d time.Duration) bool {
	timer := b.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// allow and hold let work pass and hold it back; the caller holds the lock.
func (b *Breaker) allow() {
	if !isClosed(b.pass) {
		close(b.pass)
		b.held = make(chan struct{})
	}
}

func (b *Breaker) hold() {
	if !isClosed(b.held) {
		close(b.held)
		b.pass = make(chan struct{})
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
