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
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// trial is a throttle in virtual time. It records the started keys. The GET of each takes one second.
type trial struct {
	*testing.T
	*throttle.Throttle

	names chan string
}

// try runs a test of a throttle in a bubble.
func try(t *testing.T, cfg throttle.Config, test func(*trial)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&trial{T: t, Throttle: throttle.New(cfg), names: make(chan string, 100_000)})
	})
}

// perHost returns a configuration with eight slots and a limit of n for each host.
func perHost(n int) throttle.Config {
	c := throttle.Defaults()
	c.Slots, c.PerHost = 8, n
	return c
}

func (t *trial) granted(r throttle.Request) *throttle.Ticket {
	t.Helper()
	slot, wait := t.Acquire(r)
	if wait != nil {
		t.Fatalf("%s for %s has no slot: %s", r.Host, r.Namespace, wait.For)
	}
	return slot
}

func (t *trial) refused(r throttle.Request, want v1.WaitsFor) time.Duration {
	t.Helper()
	_, wait := t.Acquire(r)
	if wait == nil {
		t.Fatalf("%s for %s has a slot", r.Host, r.Namespace)
	}
	if wait.For != want {
		t.Fatalf("%s for %s has no slot because of %s instead of %s", r.Host, r.Namespace, wait.For, want)
	}
	return wait.Pause
}

// paused makes a GET whose response requests a pause of an hour.
func (t *trial) paused(host, namespace string) {
	t.Helper()
	slot := t.granted(on(host, namespace))
	slot.Pause(time.Hour)
	slot.End()
}

func on(host, namespace string) throttle.Request {
	return throttle.Request{Host: host, Namespace: namespace}
}

func TestOneSlotOfAHostIsReservedForASecondNamespace(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		first := t.granted(on("a", "one"))
		t.granted(on("a", "one"))
		t.refused(on("a", "one"), v1.WaitsFor_WAITS_FOR_HOST)
		t.granted(on("a", "two"))
		t.refused(on("a", "three"), v1.WaitsFor_WAITS_FOR_HOST)
		t.granted(on("b", "one"))
		first.Release()
		first.Release() // a second call is no second release
		t.granted(on("a", "three"))
		t.refused(on("a", "one"), v1.WaitsFor_WAITS_FOR_HOST)
	})
}

func TestAHostWithOneSlotServesAllNamespaces(t *testing.T) {
	try(t, perHost(1), func(t *trial) {
		t.granted(on("a", "one")).Release()
		t.granted(on("a", "two")).Release()
	})
}

func TestNoRequestWaitsLongForAHangingHost(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		t.granted(on("a", "one"))
		t.granted(on("a", "one"))
		began := time.Now()
		t.refused(on("a", "one"), v1.WaitsFor_WAITS_FOR_HOST)
		first := time.Since(began)
		if first > 25*time.Millisecond {
			t.Errorf("the first request waited for %s", first)
		}
		for range 10 {
			t.refused(on("a", "one"), v1.WaitsFor_WAITS_FOR_HOST)
		}
		if took := time.Since(began); took != first {
			t.Errorf("further requests waited for %s", took-first)
		}
	})
}

func TestRequestsWaitForAFastHostInOrder(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				slot := t.granted(on("a", "one"))
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

func TestANamespaceMayTakeAllSlotsWhileNoOtherWaits(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		for i := range 8 {
			t.granted(on(fmt.Sprint("host", i), "greedy"))
		}
	})
}

func TestANamespaceIsLimitedToItsShareWhileOthersWait(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		t.granted(on("other", "modest")).Release()
		var slots []*throttle.Ticket
		for i := range 4 {
			slots = append(slots, t.granted(on(fmt.Sprint("host", i), "greedy")))
		}
		t.refused(on("next", "greedy"), v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE)
		t.granted(on("other", "modest"))
		slots[0].Release()
		t.granted(on("next", "greedy"))
		t.refused(on("one more", "greedy"), v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE)
		pass(11 * time.Second)
		t.granted(on("one more", "greedy"))
	})
}

func TestABacklogLimitsANamespaceToItsShare(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		for i := range 4 {
			t.granted(on(fmt.Sprint("host", i), "greedy"))
		}
		next := throttle.Request{Host: "next", Namespace: "greedy", Backlog: true}
		t.refused(next, v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE)
	})
}

func TestAQueuedKeyDoesNotHideTheBacklog(t *testing.T) {
	try(t, perHost(8), func(t *trial) {
		t.granted(throttle.Request{Host: "a", Namespace: "greedy", Backlog: true}).End()
		first := t.granted(throttle.Request{Host: "a", Namespace: "greedy", Backlog: true})
		for i := range 8 {
			t.queue("greedy", fmt.Sprint(i), throttle.Wanted, time.Now())
		}
		pass(1500 * time.Millisecond) // the GETs of the first ones have ended
		if n := len(t.names); n != 2*3 {
			t.Errorf("%d keys were started next to the first one, of a share of 4 slots", n)
		}
		first.End()
		t.order()
	})
}

func TestABacklogIsForgottenWithoutDeliveries(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		for i := range 4 {
			t.granted(throttle.Request{Host: fmt.Sprint("host", i), Namespace: "greedy", Backlog: true})
		}
		pass(11 * time.Second) // another fetcher has taken the messages
		t.queue("greedy", "next", throttle.Wanted, time.Now())
		t.starts("greedy/next")
	})
}

func TestAPauseIsShortForOthersAndGrows(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		for i := range 80 {
			want := min(time.Second<<min(i, 8), 5*time.Second)
			slot := t.granted(on("a", "slowed"))
			pass(time.Millisecond)
			slot.Pause(time.Hour)
			slot.End()
			if wait := t.refused(on("a", "other"), v1.WaitsFor_WAITS_FOR_PAUSE); wait != want {
				t.Errorf("refusal %d: others pause for %s, want %s", i+1, wait, want)
			}
			want = min(time.Second<<min(i, 8), time.Minute)
			if wait := t.refused(on("a", "slowed"), v1.WaitsFor_WAITS_FOR_PAUSE); wait != want {
				t.Errorf("refusal %d: the namespace pauses for %s, want %s", i+1, wait, want)
			}
			t.granted(on("b", "slowed")).End()
			pass(time.Minute)
		}
	})
}

func TestRefusalsOfConcurrentGETsCountOnce(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		one, two := t.granted(on("a", "slowed")), t.granted(on("a", "slowed"))
		pass(time.Second)
		for _, slot := range []*throttle.Ticket{one, two} {
			slot.Pause(time.Hour)
			slot.Release()
		}
		if wait := t.refused(on("a", "other"), v1.WaitsFor_WAITS_FOR_PAUSE); wait != time.Second {
			t.Errorf("others pause for %s", wait)
		}
	})
}

func TestAPauseEndsWithAGoodResponse(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		old, slot := t.granted(on("a", "two")), t.granted(on("a", "slowed"))
		pass(time.Millisecond)
		slot.Pause(time.Hour)
		slot.Release()
		old.Resume() // its GET began before the refusal
		old.Release()
		t.refused(on("a", "two"), v1.WaitsFor_WAITS_FOR_PAUSE)
		urgent := t.granted(throttle.Request{Host: "a", Namespace: "two", Urgent: true})
		t.refused(throttle.Request{Host: "a", Namespace: "two", Urgent: true}, v1.WaitsFor_WAITS_FOR_PAUSE)
		pass(time.Millisecond)
		urgent.Resume()
		urgent.Release()
		t.granted(on("a", "two"))
		t.granted(on("a", "slowed"))
	})
}

// Too many known hosts would use up the memory, and end all pauses.
func TestOnlyIdleHostsAreForgotten(t *testing.T) {
	const many = 16 * 1024 // the number of hosts from which pauses are ignored
	try(t, perHost(3), func(t *trial) {
		t.granted(on("busy", "one"))
		t.granted(on("busy", "one"))
		t.paused("paused", "one")
		for n := range many {
			t.granted(on(fmt.Sprint("host", n), fmt.Sprint("namespace", n))).End()
		}
		t.refused(on("busy", "one"), v1.WaitsFor_WAITS_FOR_HOST)
		t.refused(on("paused", "two"), v1.WaitsFor_WAITS_FOR_PAUSE)
		t.paused("another", "one")
		t.refused(on("another", "two"), v1.WaitsFor_WAITS_FOR_PAUSE)
	})
}

func TestTheNumberOfPausesIsLimited(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		for n := range 16*1024 - 1 {
			t.paused(fmt.Sprint("host", n), fmt.Sprint("namespace", n))
		}
		t.refused(on(fmt.Sprint("host", 16*1024-2), "one"), v1.WaitsFor_WAITS_FOR_PAUSE)
		t.paused("another", "one")
		t.granted(on("another", "two"))
		pass(time.Minute) // all pauses end
	})
}

func TestHostsAreCountedByState(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		expect := func(paused, queued, active float64) {
			t.Helper()
			want := map[string]float64{"paused": paused, "queued": queued, "active": active}
			if got := t.Hosts(); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		expect(0, 0, 0)
		t.granted(on("idle", "one")).End()
		slot := t.granted(on("a", "one"))
		t.granted(on("b", "one"))
		expect(0, 0, 2)
		t.granted(on("b", "one"))
		t.refused(on("b", "one"), v1.WaitsFor_WAITS_FOR_HOST)
		pass(time.Minute) // the host is slow
		t.Enqueue(&throttle.QueuedKey{Host: "b", Key: pipeline.Key{Namespace: "one"}, Until: time.Now().Add(time.Minute)})
		expect(0, 1, 1)
		slot.Pause(time.Hour)
		expect(1, 1, 0)
	})
}

func TestASlotOfAWaitingRequestCountsForHostAndNamespace(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		once := t.granted(on("a", "one"))
		pass(5 * time.Millisecond) // a fast host
		once.Release()
		first := t.granted(on("a", "one"))
		t.granted(on("a", "one"))
		t.granted(on("a", "two"))
		var wg sync.WaitGroup
		wg.Go(func() { t.granted(on("a", "one")) })
		synctest.Wait()
		first.Release()
		wg.Wait()
		t.refused(on("a", "two"), v1.WaitsFor_WAITS_FOR_HOST)
		t.granted(on("b", "one"))
		t.granted(on("c", "one"))
		t.refused(on("d", "one"), v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE)
	})
}

// pass lets time pass in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }
