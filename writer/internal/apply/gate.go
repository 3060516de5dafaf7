package apply

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/service"
)

const (
	// closeAfter is how many requests in a row must fail before the API server
	// counts as away: one object may fail for reasons of its own.
	closeAfter = 3
	// probeFirst and probeMax bound the pause before the API server is asked
	// whether it is back.
	probeFirst = 250 * time.Millisecond
	probeMax   = 2 * time.Second
	// trial is how long the gate stands open on the word of a probe alone.
	trial = 5 * time.Second
	// passWait is how long work waits at a closed gate before it is put back.
	passWait = 10 * time.Second
	// denialLasts is how long a denial counts that is not repeated.
	denialLasts = 30 * time.Second
)

// Gate keeps work from an API server that is away, and knows when it is back.
// It says each change once, in the log and to the health of the process.
type Gate struct {
	probe func(context.Context) error
	clock clock.WithTicker
	log   zerolog.Logger
	part  *service.Part

	mu     sync.Mutex
	open   chan struct{}        // closed while work may pass
	shut   chan struct{}        // closed while it may not
	up     bool                 // as it was said
	faults int                  // in a row
	after  time.Duration        // how long the API server asked to be left alone
	denied map[string]time.Time // when, by namespace
	ended  chan struct{}        // closed when nobody looks after the gate any more
}

// NewGate returns a gate that is open.
func NewGate(probe func(context.Context) error, c clock.WithTicker, log zerolog.Logger, part *service.Part) *Gate {
	g := &Gate{
		probe: probe, clock: c, log: log, part: part, up: true, denied: map[string]time.Time{},
		open: make(chan struct{}), shut: make(chan struct{}), ended: make(chan struct{}),
	}
	close(g.open)
	return g
}

// Pass tells whether the API server may be asked. At a closed gate it waits a
// while for it to open.
func (g *Gate) Pass(ctx context.Context) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return true
	default:
	}
	timer := g.clock.NewTimer(passWait)
	defer timer.Stop()
	select {
	case <-open:
		return true
	case <-g.ended:
	case <-ctx.Done():
	case <-timer.C():
	}
	return false
}

// Open tells whether the API server may be asked now.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return isClosed(g.open)
}

// Denied returns the number of namespaces in which the writer was refused for
// lack of a permission, and not served since.
func (g *Gate) Denied() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.denied)
}

// Up tells whether the API server is believed to serve us.
func (g *Gate) Up() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.up
}

// Success tells that the API server has served a request for a namespace.
func (g *Gate) Success(namespace string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.works()
	if _, denied := g.denied[namespace]; denied {
		delete(g.denied, namespace)
		g.permitted()
	}
}

// works notes that the API server is there. The caller holds the lock.
func (g *Gate) works() {
	g.faults, g.after = 0, 0
	g.opened()
	if !g.up {
		g.up = true
		g.log.Info().Msg("Kubernetes API server serves us again")
	}
	if len(g.denied) == 0 {
		g.part.Ready()
	}
}

// permitted notes that one denial less holds. The caller holds the lock.
func (g *Gate) permitted() {
	if len(g.denied) > 0 {
		return
	}
	g.log.Info().Msg("the writer has its permissions again")
	if g.up {
		g.part.Ready()
	}
}

// Fault tells that it did not, and for how long it asks to be left alone.
func (g *Gate) Fault(err error, after time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults++
	g.after = max(g.after, after)
	if g.faults < closeAfter && after == 0 && g.up {
		return
	}
	if g.up {
		g.up = false
		g.log.Warn().Err(err).Msg("Kubernetes API server does not serve us; results wait until it does")
		g.part.NotReady("the Kubernetes API server does not answer")
	}
	g.closed()
}

// Deny tells that the API server does not permit what the writer does in a
// namespace. It may in others, so the gate stays open.
func (g *Gate) Deny(namespace string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.denied) == 0 {
		g.log.Error().Err(err).Msg("the writer lacks a permission; grant get and patch of configmaps to its service account")
	}
	g.denied[namespace] = g.clock.Now()
	g.part.NotReady("the Kubernetes API server refuses the writer")
}

// Run looks after the gate until ctx is done: when it is closed, it asks the
// API server whether it is back.
func (g *Gate) Run(ctx context.Context) {
	defer close(g.ended)
	if err := g.probe(ctx); err == nil {
		g.served()
	} else if ctx.Err() == nil {
		g.Fault(err, probeFirst)
	}
	ticker := g.clock.NewTicker(denialLasts)
	defer ticker.Stop()
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			g.forgive()
		case <-shut:
			g.reopen(ctx)
		}
	}
}

// served is Success for no namespace in particular.
func (g *Gate) served() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.works()
}

// forgive forgets denials that were not repeated: what was denied comes back
// every few seconds, unless another replica was permitted to do it.
func (g *Gate) forgive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.denied)
	maps.DeleteFunc(g.denied, func(_ string, at time.Time) bool { return g.clock.Since(at) >= denialLasts })
	if len(g.denied) < before {
		g.permitted()
	}
}

// reopen asks until there is an answer, and then lets work try.
func (g *Gate) reopen(ctx context.Context) {
	for wait := probeFirst; ; wait = min(2*wait, probeMax) {
		g.mu.Lock()
		pause := max(wait, g.after)
		g.after = 0
		g.mu.Unlock()
		if !g.sleep(ctx, pause) {
			return
		}
		if g.probe(ctx) == nil {
			break
		}
	}
	g.mu.Lock()
	g.opened()
	shut := g.shut
	g.mu.Unlock()
	timer := g.clock.NewTimer(trial)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-shut: // the trial has failed
	case <-timer.C():
		if g.Open() {
			g.served()
		}
	}
}

func (g *Gate) sleep(ctx context.Context, d time.Duration) bool {
	timer := g.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// opened and closed move the gate; the caller holds the lock.
func (g *Gate) opened() {
	if !isClosed(g.open) {
		close(g.open)
		g.shut = make(chan struct{})
	}
}

func (g *Gate) closed() {
	if !isClosed(g.shut) {
		close(g.shut)
		g.open = make(chan struct{})
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
