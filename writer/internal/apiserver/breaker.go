package apiserver

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/proto/process"
)

const (
	// tripAfter is the number of failed requests in a row after which the API server counts as
	// unavailable. Fewer may be the fault of a single object.
	tripAfter = 3
	// probeFirst and probeMax are the first and the maximum pause between probes.
	probeFirst = 250 * time.Millisecond
	probeMax   = 2 * time.Second
	// trial is how long work passes after a successful probe before the API server counts as available without a
	// served request.
	trial = 5 * time.Second
	// maxHold is how long work waits before its messages go back to the queue.
	maxHold = 10 * time.Second
	// denialLifetime is how long a denial counts unless it is repeated.
	denialLifetime = 10 * time.Minute
)

// BreakerDeps are the dependencies of a Breaker.
type BreakerDeps struct {
	// Probe returns nil if the API server is ready.
	Probe func(context.Context) error
	// Log gets a line for each change.
	Log zerolog.Logger
	// Part represents the API server in the health of the process. Nil means none.
	Part *process.HealthPart
}

// Breaker is a circuit breaker that holds work back while the API server is unavailable. It logs each change once
// and shows it in the health of the process.
type Breaker struct {
	deps    BreakerDeps
	tripped chan struct{} // has a value if Run must probe

	mu       sync.Mutex
	allows   bool
	pass     chan struct{}        // closed while work may pass
	up       bool                 // as logged
	failures int                  // in a row
	after    time.Duration        // requested pause
	denied   map[string]time.Time // time of the last denial by namespace
	servedAt time.Time            // time of the last request that was served
}

// NewBreaker returns a breaker that lets work pass.
func NewBreaker(d BreakerDeps) *Breaker {
	b := &Breaker{
		deps: d, tripped: make(chan struct{}, 1),
		allows: true, up: true, pass: make(chan struct{}), denied: map[string]time.Time{},
	}
	close(b.pass)
	return b
}

// Pass reports whether work may begin. While the API server is unavailable it waits, but at most maxHold and
// until draining is closed.
func (b *Breaker) Pass(draining <-chan struct{}) bool {
	b.mu.Lock()
	allows, pass := b.allows, b.pass
	b.mu.Unlock()
	if allows {
		return true
	}
	select {
	case <-pass:
		return true
	case <-draining:
	case <-time.After(maxHold):
	}
	return false
}

// Allows reports whether work may begin now.
func (b *Breaker) Allows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allows
}

// Denied returns the number of namespaces whose last request was denied for lack of a permission.
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

// Success reports that the API server has served a request for a namespace.
func (b *Breaker) Success(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servedAt = time.Now()
	b.restore()
	b.forgive(func(denied string, _ time.Time) bool { return denied == namespace })
}

// restore marks the API server as available. The caller holds the lock.
func (b *Breaker) restore() {
	b.failures, b.after = 0, 0
	b.allow()
	if !b.up {
		b.up = true
		b.deps.Log.Info().Msg("Kubernetes API server available again")
	}
	b.deps.Part.Ready()
}

// forgive removes some denials. The caller holds the lock.
func (b *Breaker) forgive(which func(namespace string, at time.Time) bool) {
	before := len(b.denied)
	maps.DeleteFunc(b.denied, which)
	if len(b.denied) == before || len(b.denied) > 0 {
		return
	}
	b.deps.Log.Info().Msg("the writer has its token and permissions again")
	if b.up {
		b.deps.Part.Ready()
	}
}

// Failure reports that the API server did not serve a request, and the pause that it requested.
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
		b.deps.Log.Warn().Err(err).Msg("Kubernetes API server unavailable, holding results")
		b.deps.Part.NotReady("the Kubernetes API server does not answer")
	}
	if b.allows {
		b.allows, b.pass = false, make(chan struct{})
		select {
		case b.tripped <- struct{}{}:
		default: // Run is about to probe
		}
	}
}

// Deny reports a missing permission in a namespace, or that the writer's token is not accepted. Work
// goes on, because the writer may have the permission in others. The process is unready while no
// namespace is served, and without a token.
func (b *Breaker) Deny(namespace string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cause := "the writer lacks a permission: grant get and patch of configmaps to its service account"
	noToken := apierrors.IsUnauthorized(err)
	if noToken {
		cause = "the API server does not accept the writer's token, which has expired or whose service account was " +
			"deleted; it is read again every minute: restart the pod if this lasts"
	}
	if len(b.denied) == 0 {
		b.deps.Log.Error().Err(err).Msg(cause)
	}
	b.denied[namespace] = time.Now()
	if noToken || time.Since(b.servedAt) >= denialLifetime {
		b.deps.Part.NotReady("the Kubernetes API server denies the writer")
	}
}

// Run probes the API server while it is unavailable, until ctx is done. After a successful probe, work passes
// on trial.
func (b *Breaker) Run(ctx context.Context) {
	if err := b.deps.Probe(ctx); err == nil {
		b.served()
	} else if ctx.Err() == nil {
		b.Failure(err, probeFirst)
	}
	ticker := time.NewTicker(denialLifetime)
	defer ticker.Stop()
	var trialOver <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C: // a namespace that is still denied gets a new denial
			b.mu.Lock()
			b.forgive(func(_ string, at time.Time) bool { return time.Since(at) >= denialLifetime })
			b.mu.Unlock()
		case <-b.tripped: // also by a failed trial
			b.awaitProbe(ctx)
			trialOver = time.After(trial)
		case <-trialOver:
			if b.Allows() {
				b.served()
			}
		}
	}
}

func (b *Breaker) served() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restore()
}

// awaitProbe lets work pass once a probe succeeds.
func (b *Breaker) awaitProbe(ctx context.Context) {
	for wait := probeFirst; ; wait = min(2*wait, probeMax) {
		b.mu.Lock()
		pause := max(wait, b.after)
		b.after = 0
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if b.deps.Probe(ctx) == nil {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allow()
}

// allow lets work pass. The caller holds the lock.
func (b *Breaker) allow() {
	if !b.allows {
		b.allows = true
		close(b.pass)
	}
}
