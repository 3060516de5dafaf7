package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
)

var errRefused = errors.New("connection refused")

// guarded is a breaker for an API server that can be made unavailable.
type guarded struct {
	*WithT
	*apiserver.Breaker
	health *process.Health
	log    *bytes.Buffer
	down   atomic.Bool
	probes atomic.Int32
}

func newGuarded(t *testing.T, down bool) *guarded {
	t.Helper()
	g := &guarded{WithT: NewWithT(t), health: process.NewHealth(), log: &bytes.Buffer{}}
	g.down.Store(down)
	g.Breaker = apiserver.NewBreaker(apiserver.BreakerDeps{Probe: func(context.Context) error {
		g.probes.Add(1)
		if g.down.Load() {
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

// expect checks whether work may begin, whether the writer is ready, and the number of log lines.
func (g *guarded) expect(allows, ready bool, lines int) {
	g.Expect([]bool{g.Allows(), g.health.Ready()}).To(Equal([]bool{allows, ready}), "allows, ready; log %s", g.log)
	g.Expect(strings.Count(g.log.String(), "\n")).To(Equal(lines), "log %s", g.log)
}

// expectPass expects that waiting work may begin within a time.
func (g *guarded) expectPass(t *testing.T, within time.Duration) {
	t.Helper()
	begun := time.Now()
	g.Expect(g.Pass(t.Context().Done())).To(BeTrue())
	g.Expect(time.Since(begun)).To(BeNumerically("<=", within))
}

func TestBreakerLetsWorkPassWhenTheServerIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, true)
		g.expect(false, false, 1)
		<-time.After(time.Minute)
		synctest.Wait()
		g.Expect(g.probes.Load()).To(And(BeNumerically(">=", 20), BeNumerically("<=", 40)), "in a minute")
		g.expect(false, false, 1)
		g.down.Store(false)
		g.expectPass(t, 3*time.Second)
		g.Expect(g.health.Ready()).To(BeFalse(), "a probe alone proves nothing")
		<-time.After(6 * time.Second)
		synctest.Wait()
		g.expect(true, true, 2)
	})
}

func TestBreakerToleratesTwoFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		for range 5 {
			g.Failure(errRefused, 0)
			g.Failure(errRefused, 0)
			g.Success("ns")
		}
		g.expect(true, true, 0)
		for range 3 {
			g.Failure(errRefused, 0)
		}
		g.expect(false, false, 1)
	})
}

// A server that passes probes but serves no request is tried again and again, without a log line
// each time.
func TestBreakerOnTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		for range 3 {
			g.Failure(errRefused, 0)
		}
		for range 20 {
			g.Expect(g.Pass(t.Context().Done())).To(BeTrue(), "a trial")
			g.Failure(errRefused, 0)
			g.expect(false, false, 1)
		}
		g.Pass(t.Context().Done())
		g.Success("ns")
		g.expect(true, true, 2)
	})
}

func TestBreakerHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		probed := g.probes.Load()
		g.Failure(errRefused, 7*time.Second)
		<-time.After(6900 * time.Millisecond)
		synctest.Wait()
		g.Expect(g.Allows()).To(BeFalse())
		g.Expect(g.probes.Load()).To(Equal(probed))
		g.expectPass(t, time.Second)
	})
}

func TestBreakerHoldsWorkForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, true)
		begun := time.Now()
		g.Expect(g.Pass(t.Context().Done())).To(BeFalse())
		g.Expect(time.Since(begun)).To(Equal(10 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Expect(g.Pass(ctx.Done())).To(BeFalse())
	})
}

func TestARefusedTokenIsNoMissingPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		g.Success("a")
		g.Deny("a", apierrors.NewUnauthorized("Unauthorized"))
		g.expect(true, false, 1)
		g.Expect(g.log.String()).To(And(ContainSubstring("does not accept the writer's token"),
			Not(ContainSubstring("permission"))))
		g.Success("a")
		g.expect(true, true, 2)
	})
}

func TestDenialsAreCountedByNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, false)
		g.Deny("a", errors.New("forbidden"))
		g.expect(true, false, 1)
		for range 10 {
			g.Success("c")
			g.Deny("a", errors.New("forbidden"))
			g.Deny("b", errors.New("forbidden"))
		}
		g.expect(true, true, 1)
		g.Expect(g.Denied()).To(Equal(2))
		g.Success("a")
		g.Expect(g.Denied()).To(Equal(1))
		g.expect(true, true, 1)
		g.Success("b")
		g.Expect(g.Denied()).To(BeZero())
		g.expect(true, true, 2)
		<-time.After(11 * time.Minute)
		g.Deny("a", errors.New("forbidden"))
		g.Expect(g.health.Ready()).To(BeFalse(), "nothing was served for long")
		<-time.After(30 * time.Minute)
		synctest.Wait()
		g.Expect(g.Denied()).To(BeZero(), "a denial that was not repeated expires")
		g.expect(true, true, 4)
	})
}
