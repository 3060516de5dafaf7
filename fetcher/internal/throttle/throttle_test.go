package throttle_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func config() throttle.Config {
	c := throttle.Defaults()
	c.Slots, c.PerHost = 8, 3
	return c
}

func granted(t *testing.T, th *throttle.Throttle, r throttle.Request) *throttle.Slot {
	t.Helper()
	slot, busy := th.Acquire(r)
	if busy != nil {
		t.Fatalf("%s for %s has no slot: %s", r.Host, r.Namespace, busy.Cause)
	}
	return slot
}

func refused(t *testing.T, th *throttle.Throttle, r throttle.Request, cause throttle.Cause) time.Duration {
	t.Helper()
	_, busy := th.Acquire(r)
	if busy == nil {
		t.Fatalf("%s for %s has a slot", r.Host, r.Namespace)
	}
	if busy.Cause != cause {
		t.Fatalf("%s for %s has no slot because of %s instead of %s", r.Host, r.Namespace, busy.Cause, cause)
	}
	return busy.Pause
}

func on(host, namespace string) throttle.Request {
	return throttle.Request{Host: host, Namespace: namespace}
}

func TestOneSlotOfAHostIsKeptForASecondNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		first := granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		refused(t, th, on("a", "one"), throttle.HostBusy)
		granted(t, th, on("a", "two"))
		refused(t, th, on("a", "three"), throttle.HostBusy)
		granted(t, th, on("b", "one"))
		first.Release()
		first.Release() // a second call is no second release
		granted(t, th, on("a", "three"))
		refused(t, th, on("a", "one"), throttle.HostBusy)
	})
}

func TestAHostWithOneSlotServesAll(t *testing.T) {
	cfg := config()
	cfg.PerHost = 1
	th := throttle.New(cfg)
	granted(t, th, on("a", "one")).Release()
	granted(t, th, on("a", "two")).Release()
}

func TestNoRequestWaitsLongForAHangingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		began := time.Now()
		refused(t, th, on("a", "one"), throttle.HostBusy)
		learnt := time.Since(began)
		if learnt > 25*time.Millisecond {
			t.Errorf("waited for %s to learn that the host hangs", learnt)
		}
		for range 10 {
			refused(t, th, on("a", "one"), throttle.HostBusy)
		}
		if took := time.Since(began); took != learnt {
			t.Errorf("waited for %s more", took-learnt)
		}
	})
}

func TestAQuickHostIsWaitedForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				slot := granted(t, th, on("a", "one"))
				pass(5 * time.Millisecond)
				mu.Lock()
				order = append(order, i/2)
				mu.Unlock()
				slot.Release()
			})
			synctest.Wait()
		}
		wg.Wait()
		if len(order) != 8 || !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// used lets a namespace use a host once, so that it is known how long it takes.
func used(t *testing.T, th *throttle.Throttle, host, namespace string, takes time.Duration) {
	t.Helper()
	slot := granted(t, th, on(host, namespace))
	pass(takes)
	slot.Release()
}

func TestANamespaceMayTakeAllWhileNoOtherWantsAny(t *testing.T) {
	th := throttle.New(config())
	for i := range config().Slots {
		granted(t, th, on(fmt.Sprint("host", i), "greedy"))
	}
}

func TestANamespaceHoldsItsShareWhileOthersWantSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		granted(t, th, on("other", "modest")).Release()
		var slots []*throttle.Slot
		for i := range config().Slots / 2 {
			slots = append(slots, granted(t, th, on(fmt.Sprint("host", i), "greedy")))
		}
		refused(t, th, on("next", "greedy"), throttle.NamespaceShare)
		granted(t, th, on("other", "modest"))
		slots[0].Release()
		granted(t, th, on("next", "greedy"))
		refused(t, th, on("one more", "greedy"), throttle.NamespaceShare)
		pass(11 * time.Second)
		granted(t, th, on("one more", "greedy"))
	})
}

func TestABacklogCountsAsOthers(t *testing.T) {
	th := throttle.New(config())
	for i := range config().Slots / 2 {
		granted(t, th, on(fmt.Sprint("host", i), "greedy"))
	}
	refused(t, th, throttle.Request{Host: "next", Namespace: "greedy", Backlog: true}, throttle.NamespaceShare)
}

func TestAPauseIsShortForOthersAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		for i := range 80 {
			want := min(time.Second<<min(i, 8), 5*time.Second)
			slot := granted(t, th, on("a", "asks"))
			pass(time.Millisecond)
			slot.Pause(time.Hour)
			slot.End()
			if wait := refused(t, th, on("a", "other"), throttle.HostSlowed); wait != want {
				t.Errorf("refusal %d: others come back after %s, want %s", i+1, wait, want)
			}
			want = min(time.Second<<min(i, 8), time.Minute)
			if wait := refused(t, th, on("a", "asks"), throttle.HostSlowed); wait != want {
				t.Errorf("refusal %d: the namespace comes back after %s, want %s", i+1, wait, want)
			}
			granted(t, th, on("b", "asks")).End()
			pass(time.Minute)
		}
	})
}

func TestRefusalsOfGETsUnderWayCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		one, two := granted(t, th, on("a", "asks")), granted(t, th, on("a", "asks"))
		pass(time.Second)
		for _, slot := range []*throttle.Slot{one, two} {
			slot.Pause(time.Hour)
			slot.Release()
		}
		if wait := refused(t, th, on("a", "other"), throttle.HostSlowed); wait != time.Second {
			t.Errorf("others come back after %s", wait)
		}
	})
}

func TestAPauseEndsWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		old, slot := granted(t, th, on("a", "two")), granted(t, th, on("a", "asks"))
		pass(time.Millisecond)
		slot.Pause(time.Hour)
		slot.Release()
		old.Resume() // it began before
		old.Release()
		refused(t, th, on("a", "two"), throttle.HostSlowed)
		urgent := granted(t, th, throttle.Request{Host: "a", Namespace: "two", Urgent: true})
		refused(t, th, throttle.Request{Host: "a", Namespace: "two", Urgent: true}, throttle.HostSlowed)
		pass(time.Millisecond)
		urgent.Resume()
		urgent.Release()
		granted(t, th, on("a", "two"))
		granted(t, th, on("a", "asks"))
	})
}

// Idle hosts are forgotten when there are many, and only those: else what is known of
// hosts would grow without bound, and pauses would be no more.
func TestOnlyIdleHostsAreForgotten(t *testing.T) {
	const many = 16 * 1024 // of which pauses are remembered
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		granted(t, th, on("busy", "one"))
		granted(t, th, on("busy", "one"))
		slot := granted(t, th, on("paused", "one"))
		slot.Pause(time.Hour)
		slot.Release()
		for n := range many {
			granted(t, th, on(fmt.Sprint("host", n), fmt.Sprint("namespace", n))).End()
		}
		refused(t, th, on("busy", "one"), throttle.HostBusy)
		refused(t, th, on("paused", "two"), throttle.HostSlowed)
		slot = granted(t, th, on("another", "one"))
		slot.Pause(time.Hour)
		slot.Release()
		refused(t, th, on("another", "two"), throttle.HostSlowed)
	})
}

func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		pause := func(host, namespace string) {
			slot := granted(t, th, on(host, namespace))
			slot.Pause(time.Hour)
			slot.End()
		}
		for n := range 16*1024 - 1 {
			pause(fmt.Sprint("host", n), fmt.Sprint("namespace", n))
		}
		refused(t, th, on(fmt.Sprint("host", 16*1024-2), "one"), throttle.HostSlowed)
		pause("another", "one")
		granted(t, th, on("another", "two"))
		pass(time.Minute) // the ends of all pauses
	})
}

func TestHostsAreCountedByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		expect := func(paused, queued, active float64) {
			t.Helper()
			want := map[string]float64{"paused": paused, "queued": queued, "active": active}
			if got := th.Hosts(); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		expect(0, 0, 0)
		granted(t, th, on("idle", "one")).End()
		slot := granted(t, th, on("a", "one"))
		granted(t, th, on("b", "one"))
		expect(0, 0, 2)
		granted(t, th, on("b", "one"))
		refused(t, th, on("b", "one"), throttle.HostBusy)
		pass(time.Minute) // the host is slow
		th.Enqueue(&throttle.Waiter{Host: "b", Key: pipeline.Key{Namespace: "one"}, Until: time.Now().Add(time.Minute)})
		expect(0, 1, 1)
		slot.Pause(time.Hour)
		expect(1, 1, 0)
	})
}

func TestASlotThatIsHandedOnCountsForHostAndNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(config())
		used(t, th, "a", "one", 5*time.Millisecond)
		first := granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		granted(t, th, on("a", "two"))
		var wg sync.WaitGroup
		wg.Go(func() { granted(t, th, on("a", "one")) })
		synctest.Wait()
		first.Release()
		wg.Wait()
		refused(t, th, on("a", "two"), throttle.HostBusy)
		granted(t, th, on("b", "one"))
		granted(t, th, on("c", "one"))
		refused(t, th, on("d", "one"), throttle.NamespaceShare)
	})
}
