package throttle_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
)

func limits() throttle.Config {
	return throttle.Config{
		Slots: 8, PerHost: 2, Share: 0.5,
		Patience: 100 * time.Millisecond, Pause: time.Second, MaxPause: 15 * time.Second,
	}
}

func limiter(t *testing.T, l throttle.Config) *throttle.Throttle {
	t.Helper()
	limiter, err := throttle.New(l, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func admitted(t *testing.T, l *throttle.Throttle, host, namespace string) (release func()) {
	t.Helper()
	release, busy := l.Acquire(host, namespace, false)
	if busy != nil {
		t.Fatalf("%s for %s is not admitted: %s", host, namespace, busy.Cause)
	}
	return release
}

func refused(t *testing.T, l *throttle.Throttle, host, namespace string, cause throttle.Cause) time.Duration {
	t.Helper()
	_, busy := l.Acquire(host, namespace, false)
	if busy == nil {
		t.Fatalf("%s for %s is admitted", host, namespace)
	}
	if busy.Cause != cause {
		t.Fatalf("%s for %s is not admitted because of %s instead of %s", host, namespace, busy.Cause, cause)
	}
	return busy.Wait
}

func TestAHostHasSoManySlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, limits())
		first := admitted(t, l, "a", "ns")
		admitted(t, l, "a", "ns")
		if wait := refused(t, l, "a", "ns", throttle.HostBusy); wait < time.Second {
			t.Errorf("may come back after %s already", wait)
		}
		admitted(t, l, "b", "ns")
		first()
		first() // a second call is no second release
		admitted(t, l, "a", "ns")
		refused(t, l, "a", "ns", throttle.HostBusy)
	})
}

func TestNobodyWaitsForAHangingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, limits())
		admitted(t, l, "a", "ns")
		admitted(t, l, "a", "ns")
		began := time.Now()
		refused(t, l, "a", "ns", throttle.HostBusy)
		learnt := time.Since(began)
		if learnt != limits().Patience/10 {
			t.Errorf("waited for %s to learn that the host hangs", learnt)
		}
		for range 10 {
			refused(t, l, "a", "ns", throttle.HostBusy)
		}
		if took := time.Since(began); took != learnt {
			t.Errorf("waited for %s more", took-learnt)
		}
	})
}

func TestAQuickHostIsWaitedForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, limits())
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				release := admitted(t, l, "a", "ns")
				pass(5 * time.Millisecond)
				mu.Lock()
				order = append(order, i/2)
				mu.Unlock()
				release()
			})
			synctest.Wait()
		}
		wg.Wait()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

func TestThoseTurnedAwayComeBackSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, limits())
		for range 3 { // GETs that take 10 s
			a, b := admitted(t, l, "a", "ns"), admitted(t, l, "a", "ns")
			pass(10 * time.Second)
			a()
			b()
		}
		admitted(t, l, "a", "ns")
		admitted(t, l, "a", "ns")
		perSecond := map[time.Duration]int{}
		for range 200 {
			wait := refused(t, l, "a", "ns", throttle.HostBusy)
			if wait < limits().Pause || wait > limits().MaxPause {
				t.Fatalf("may come back after %s", wait)
			}
			perSecond[wait/time.Second]++
		}
		if len(perSecond) < 2 {
			t.Errorf("200 come back within the same second")
		}
	})
}

func TestAHostThatAsksIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, limits())
		l.SlowDown("a", time.Now().Add(time.Minute))
		l.SlowDown("a", time.Now().Add(time.Second)) // never shortens
		if wait := refused(t, l, "a", "ns", throttle.HostSlowed); wait < time.Minute {
			t.Errorf("may come back after %s already", wait)
		}
		admitted(t, l, "b", "ns")
		pass(time.Minute)
		admitted(t, l, "a", "ns")
	})
}

func TestANamespaceMayTakeAllWhileNobodyElseWantsAny(t *testing.T) {
	l := limiter(t, limits())
	for i := range limits().Slots {
		admitted(t, l, fmt.Sprint("host", i), "greedy")
	}
}

func TestANamespaceHoldsItsShareWhileOthersWantSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, limits())
		admitted(t, l, "other", "modest")()
		var releases []func()
		for i := range limits().Slots / 2 {
			releases = append(releases, admitted(t, l, fmt.Sprint("host", i), "greedy"))
		}
		refused(t, l, "next", "greedy", throttle.NamespaceShare)
		admitted(t, l, "other", "modest")
		releases[0]()
		admitted(t, l, "next", "greedy")
		refused(t, l, "one more", "greedy", throttle.NamespaceShare)
		pass(11 * time.Second)
		admitted(t, l, "one more", "greedy")
	})
}

func TestABacklogCountsAsOthers(t *testing.T) {
	l := limiter(t, limits())
	for i := range limits().Slots / 2 {
		admitted(t, l, fmt.Sprint("host", i), "greedy")
	}
	if _, busy := l.Acquire("next", "greedy", true); busy == nil || busy.Cause != throttle.NamespaceShare {
		t.Errorf("Acquire() = %v, want refused for the share", busy)
	}
}

func TestLimitsValidate(t *testing.T) {
	for name, change := range map[string]func(*throttle.Config){
		"no slots":         func(l *throttle.Config) { l.Slots = 0 },
		"none per host":    func(l *throttle.Config) { l.PerHost = 0 },
		"no share":         func(l *throttle.Config) { l.Share = 0 },
		"more than all":    func(l *throttle.Config) { l.Share = 1.1 },
		"no pause":         func(l *throttle.Config) { l.Pause = 0 },
		"longest too long": func(l *throttle.Config) { l.MaxPause = l.Pause - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			l := limits()
			change(&l)
			if _, err := throttle.New(l, time.Now); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// pass lets time pass in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }
