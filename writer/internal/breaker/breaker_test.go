package breaker_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/writer/internal/breaker"
)

var errRefused = errors.New("connection refused")

// guarded is a breaker with an API server that may be unavailable.
type guarded struct {
	*breaker.Breaker
	health *process.Health
	log    *bytes.Buffer
	away   atomic.Bool
	probes atomic.Int32
}

func newGuarded(t *testing.T, away bool) *guarded {
	t.Helper()
	g := &guarded{health: process.NewHealth(), log: &bytes.Buffer{}}
	g.away.Store(away)
	g.Breaker = breaker.New(breaker.Deps{Probe: func(context.Context) error {
		g.probes.Add(1)
		if g.away.Load() {
			return errRefused
		}
		return nil
	}, Log: zerolog.New(g.log), Part: g.health.Part("kubernetes")})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		g.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return g
}

// lines counts log lines.
func (g *guarded) lines() int { return strings.Count(g.log.String(), "\n") }

func TestBreakerOpensWhenTheServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, true)
		if g.Allows() || g.health.Ready() {
			t.Fatal("open although the server is away")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if n := g.probes.Load(); n < 20 || n > 40 || g.lines() != 1 {
			t.Errorf("%d probes in a minute, log %s", n, g.log)
		}
		g.away.Store(false)
		begun := time.Now()
		if !g.Pass(t.Context().Done()) || time.Since(begun) > 3*time.Second {
			t.Errorf("passed after %v", time.Since(begun))
		}
		if g.health.Ready() {
			t.Error("ready on the word of a probe")
		}
		<-time.After(6 * time.Second)
		synctest.Wait()
		if !g.health.Ready() || g.lines() != 2 {
			t.Errorf("ready %v, log %s", g.health.Ready(), g.log)
		}
	})
}

func TestBreakerBearsSingleFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		for range 5 {
			g.Failure(errRefused, 0)
			g.Failure(errRefused, 0)
			g.Success("ns")
		}
		if !g.Allows() || g.lines() != 0 {
			t.Errorf("open %v, log %s", g.Allows(), g.log)
		}
		for range 3 {
			g.Failure(errRefused, 0)
		}
		if g.Allows() || g.health.Ready() || g.lines() != 1 {
			t.Errorf("open %v, log %s", g.Allows(), g.log)
		}
	})
}

// A server with a good probe that serves no request is tried again and again, without a log line
// each time.
func TestBreakerOnTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		for range 3 {
			g.Failure(errRefused, 0)
		}
		for range 20 {
			if !g.Pass(t.Context().Done()) {
				t.Fatal("no trial")
			}
			g.Failure(errRefused, 0)
			if g.Allows() || g.health.Ready() {
				t.Fatal("one fault is enough when on trial")
			}
		}
		if g.lines() != 1 {
			t.Errorf("log %s", g.log)
		}
		g.Pass(t.Context().Done())
		g.Success("ns")
		if !g.health.Ready() || g.lines() != 2 {
			t.Errorf("ready %v, log %s", g.health.Ready(), g.log)
		}
	})
}

func TestBreakerLeavesTheServerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		probed := g.probes.Load()
		g.Failure(errRefused, 7*time.Second)
		<-time.After(6900 * time.Millisecond)
		synctest.Wait()
		if g.Allows() || g.probes.Load() != probed {
			t.Error("not left alone")
		}
		begun := time.Now()
		if !g.Pass(t.Context().Done()) || time.Since(begun) > time.Second {
			t.Errorf("passed after %v", time.Since(begun))
		}
	})
}

func TestBreakerDoesNotHoldWorkForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, true)
		begun := time.Now()
		if g.Pass(t.Context().Done()) || time.Since(begun) != 10*time.Second {
			t.Errorf("passed, or waited for %v", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.Pass(ctx.Done()) {
			t.Error("passed")
		}
	})
}

func TestDenialsAreCountedByNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		g.Deny("a", errors.New("forbidden"))
		if g.health.Ready() {
			t.Error("ready although nothing is permitted")
		}
		for range 10 {
			g.Success("c")
			g.Deny("a", errors.New("forbidden"))
			g.Deny("b", errors.New("forbidden"))
		}
		if !g.Allows() || !g.health.Ready() || g.Denied() != 2 || g.lines() != 1 {
			t.Errorf("allows %v, ready %v, denied %d, log %s", g.Allows(), g.health.Ready(), g.Denied(), g.log)
		}
		g.Success("a")
		if g.Denied() != 1 || g.lines() != 1 {
			t.Error("b is still denied")
		}
		g.Success("b")
		if g.Denied() != 0 || g.lines() != 2 {
			t.Errorf("denied %d, log %s", g.Denied(), g.log)
		}
		<-time.After(11 * time.Minute)
		g.Deny("a", errors.New("forbidden"))
		if g.health.Ready() {
			t.Error("ready although nothing was served for long")
		}
		<-time.After(30 * time.Minute)
		synctest.Wait()
		if !g.health.Ready() || g.Denied() != 0 || g.lines() != 4 {
			t.Errorf("a denial that is not repeated holds: ready %v, log %s", g.health.Ready(), g.log)
		}
	})
}
