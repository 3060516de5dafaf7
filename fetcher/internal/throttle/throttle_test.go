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

func newThrottle(t *testing.T, cfg throttle.Config) *throttle.Throttle {
	t.Helper()
	th, err := throttle.New(cfg, throttle.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return th
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
	return busy.Wait
}

func on(host, namespace string) throttle.Request {
	return throttle.Request{Host: host, Namespace: namespace}
}

func TestOneSlotOfAHostIsKeptForASecondNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		first := granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		refused(t, th, on("a", "one"), throttle.HostBusy)
		granted(t, th, on("a", "two"))
		refused(t, th, on("a", "three"), throttle.HostBusy)
		granted(t, th, on("b", "one"))
		first.Release()
		first.Release() // a second call is no second release
		refused(t, th, on("a", "one"), throttle.HostBusy)
	})
}

func TestAHostWithOneSlotServesAll(t *testing.T) {
	cfg := config()
	cfg.PerHost = 1
	th := newThrottle(t, cfg)
	granted(t, th, on("a", "one")).Release()
	granted(t, th, on("a", "two")).Release()
}

func TestNoRequestWaitsLongForAHangingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
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
		th := newThrottle(t, config())
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

func TestReservationsAreAsFarApartAsSlotsComeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		used(t, th, "a", "one", 10*time.Second)
		granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		first := refused(t, th, on("a", "one"), throttle.HostBusy)
		for i := range 10 {
			wait, want := refused(t, th, on("a", "one"), throttle.HostBusy), first+time.Duration(i+1)*5*time.Second
			if wait > want || wait < want*8/10 {
				t.Errorf("reservation %d is after %s, want about %s", i+1, wait, want)
			}
		}
		granted(t, th, on("a", "two"))
		if wait := refused(t, th, on("a", "two"), throttle.HostBusy); wait > first {
			t.Errorf("another namespace waits for %s", wait)
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

func TestANamespaceIsNotHeldUpByAnotherOnTheSameHost(t *testing.T) {
	longest := map[bool]time.Duration{}
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := simulate(t, throttle.Defaults(), func() time.Duration { return 10 * time.Second })
			if shared {
				s.publish(1_000, want{namespace: "hostile", host: "a"})
			}
			s.publishAfter(time.Minute, 20, want{namespace: "ordinary", host: "a"})
			s.run()
			longest[shared] = s.waits["ordinary"] - time.Minute
		})
	}
	t.Logf("20 keys take %s alone, and %s beside 1,000 of another namespace", longest[false], longest[true])
	if longest[true] > 2*longest[false]+5*time.Second {
		t.Errorf("20 keys take %s, and %s alone", longest[true], longest[false])
	}
}

func TestANamespaceMayTakeAllWhileNoOtherWantsAny(t *testing.T) {
	th := newThrottle(t, config())
	for i := range config().Slots {
		granted(t, th, on(fmt.Sprint("host", i), "greedy"))
	}
}

func TestANamespaceHoldsItsShareWhileOthersWantSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
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
	th := newThrottle(t, config())
	for i := range config().Slots / 2 {
		granted(t, th, on(fmt.Sprint("host", i), "greedy"))
	}
	refused(t, th, throttle.Request{Host: "next", Namespace: "greedy", Backlog: true}, throttle.NamespaceShare)
}

func TestAPauseIsShortForOthersAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.MaxPause = 10 * time.Second
		th := newThrottle(t, cfg)
		for i := range 80 {
			want := min(time.Second<<min(i, 8), cfg.MaxPauseOthers)
			slot := granted(t, th, on("a", "asks"))
			pass(time.Millisecond)
			slot.Pause(time.Hour)
			slot.Release()
			if wait := refused(t, th, on("a", "other"), throttle.HostSlowed); wait != want {
				t.Errorf("refusal %d: others come back after %s, want %s", i+1, wait, want)
			}
			want = min(time.Second<<min(i, 8), cfg.MaxPause)
			if wait := refused(t, th, on("a", "asks"), throttle.HostSlowed); wait != want {
				t.Errorf("refusal %d: the namespace comes back after %s, want %s", i+1, wait, want)
			}
			granted(t, th, on("b", "asks")).Release()
			pass(time.Minute)
		}
	})
}

func TestRefusalsOfGETsUnderWayCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
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
		th := newThrottle(t, config())
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

func TestConfigValidate(t *testing.T) {
	for name, change := range map[string]func(*throttle.Config){
		"no slots":              func(c *throttle.Config) { c.Slots = 0 },
		"too many slots":        func(c *throttle.Config) { c.Slots = 4097 },
		"wait below zero":       func(c *throttle.Config) { c.MaxWait = -1 },
		"none per host":         func(c *throttle.Config) { c.PerHost = 0 },
		"no share":              func(c *throttle.Config) { c.Share = 0 },
		"more than all":         func(c *throttle.Config) { c.Share = 1.1 },
		"no park":               func(c *throttle.Config) { c.MinPark = 0 },
		"no pause":              func(c *throttle.Config) { c.MaxPauseOthers = 0 },
		"others pause for more": func(c *throttle.Config) { c.MaxPause = c.MaxPauseOthers - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			change(&c)
			if _, err := throttle.New(c, throttle.Deps{Now: time.Now}); err == nil {
				t.Error("accepted")
			}
		})
	}
	for name, change := range map[string]func(*throttle.Config){
		"one slot":            func(c *throttle.Config) { c.Slots = 1 },
		"most slots":          func(c *throttle.Config) { c.Slots = 4096 },
		"all for a namespace": func(c *throttle.Config) { c.Share = 1 },
		"no wait":             func(c *throttle.Config) { c.MaxWait = 0 },
		"equal pauses":        func(c *throttle.Config) { c.MaxPause = c.MaxPauseOthers },
	} {
		c := config()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Idle hosts are forgotten when there are many, and only those: else what is known of
// hosts would grow without bound, and pauses would be no more.
func TestOnlyIdleHostsAreForgotten(t *testing.T) {
	const many = 16 * 1024 // of which pauses are remembered
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		granted(t, th, on("busy", "one"))
		granted(t, th, on("busy", "one"))
		slot := granted(t, th, on("paused", "one"))
		slot.Pause(time.Hour)
		slot.Release()
		for n := range many {
			granted(t, th, on(fmt.Sprint("host", n), fmt.Sprint("namespace", n))).Release()
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
		cfg := config()
		cfg.Share = 1
		th := newThrottle(t, cfg)
		var last *throttle.Slot
		for n := range 16*1024 - 1 {
			last = granted(t, th, on(fmt.Sprint("host", n), fmt.Sprint("namespace", n)))
		}
		last.Pause(time.Hour)
		refused(t, th, on(fmt.Sprint("host", 16*1024-2), "one"), throttle.HostSlowed)
		slot := granted(t, th, on("another", "one"))
		slot.Pause(time.Hour)
		granted(t, th, on("another", "two"))
	})
}

func TestHostsAreCountedByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		expect := func(paused, queued, active float64) {
			t.Helper()
			want := map[string]float64{"paused": paused, "queued": queued, "active": active}
			if got := th.Hosts(); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		expect(0, 0, 0)
		granted(t, th, on("idle", "one")).Release()
		slot := granted(t, th, on("a", "one"))
		granted(t, th, on("b", "one"))
		expect(0, 0, 2)
		granted(t, th, on("b", "one"))
		refused(t, th, on("b", "one"), throttle.HostBusy)
		expect(0, 1, 1)
		slot.Pause(time.Hour)
		expect(1, 1, 0)
	})
}

func TestWhoIsAskedForByAPersonIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.Slots = 16 // and so places to wait for four
		th := newThrottle(t, cfg)
		used(t, th, "a", "one", 5*time.Millisecond)
		first, second := granted(t, th, on("a", "one")), granted(t, th, on("a", "one"))
		var order []string
		var wg sync.WaitGroup
		for _, r := range []struct {
			name             string
			reserved, urgent bool
		}{{"plain", false, false}, {"reserved", true, false}, {"urgent", false, true}, {"reserved later", true, false}} {
			wg.Go(func() {
				slot := granted(t, th, throttle.Request{Host: "a", Namespace: "one", Reserved: r.reserved, Urgent: r.urgent})
				order = append(order, r.name)
				slot.Release()
			})
			synctest.Wait()
		}
		first.Release()
		wg.Wait()
		second.Release()
		if want := []string{"urgent", "reserved", "reserved later", "plain"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %q", order)
		}
	})
}

func TestASlotThatIsHandedOnCountsForHostAndNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
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

func TestWhatAPersonAsksForComesBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		used(t, th, "a", "one", 10*time.Second)
		granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		for range 5 {
			refused(t, th, on("a", "one"), throttle.HostBusy)
		}
		urgent := throttle.Request{Host: "a", Namespace: "one", Urgent: true}
		for range 2 { // it reserves nothing
			if wait := refused(t, th, urgent, throttle.HostBusy); wait != config().MinPark {
				t.Errorf("it comes back after %s", wait)
			}
		}
	})
}

func TestOnlySomeRequestsWaitInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config()) // two places
		used(t, th, "a", "one", 5*time.Millisecond)
		for range 3 { // the places come free again
			first, second := granted(t, th, on("a", "one")), granted(t, th, on("a", "one"))
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { granted(t, th, on("a", "one")).Release() })
			}
			synctest.Wait()
			began := time.Now()
			refused(t, th, on("a", "one"), throttle.HostBusy)
			if waited := time.Since(began); waited > 0 {
				t.Errorf("the third waited for %s", waited)
			}
			first.Release()
			wg.Wait()
			second.Release()
			pass(time.Minute)
		}
	})
}

// pass lets time pass in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }

// waiting is a want of namespace one that asks for host a.
func waiting(n int) throttle.Request {
	r := on("a", "one")
	r.Waiter = &throttle.Waiter{Key: pipeline.Key{Namespace: "one", Name: fmt.Sprint(n), Key: "k"}, Want: uint64(n + 1)}
	return r
}

func TestWhatWaitsByAGuessIsAdvancedWhenTheHostIsQuicker(t *testing.T) {
	for takes, advances := range map[time.Duration]bool{100 * time.Millisecond: true, 5 * time.Second: false} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				th := newThrottle(t, config())
				first, second := granted(t, th, waiting(0)), granted(t, th, waiting(1))
				var last time.Duration
				for n := range 20 {
					last = refused(t, th, waiting(n+2), throttle.HostBusy)
				}
				if _, _, ok := first.Advance(); ok {
					t.Error("advanced before a GET has ended")
				}
				pass(takes)
				first.Release()
				w, wait, ok := first.Advance()
				switch {
				case ok != advances:
					t.Fatalf("advanced: %t", ok)
				case !ok:
					return
				case w.Key != waiting(21).Waiter.Key:
					t.Errorf("%v comes sooner", w.Key)
				case wait > time.Second || wait < 300*time.Millisecond:
					t.Errorf("it comes after %s in place of %s", wait, last)
				}
				second.Pause(time.Hour)
				if _, _, ok := first.Advance(); ok {
					t.Error("advanced while the host rests")
				}
			})
		})
	}
}

func TestAGuessPutsOffOnlyForAShortTimeWhatIsNotAdvanced(t *testing.T) {
	const longest = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		granted(t, th, on("refreshed", "one"))
		granted(t, th, on("refreshed", "one"))
		for n := range 100 {
			if wait := refused(t, th, on("refreshed", "one"), throttle.HostBusy); wait > longest {
				t.Fatalf("refresh %d comes after %s", n, wait)
			}
		}
		granted(t, th, on("a", "one"))
		granted(t, th, on("a", "one"))
		for n := range 20_000 { // more than are remembered
			refused(t, th, waiting(n), throttle.HostBusy)
		}
		granted(t, th, on("b", "two"))
		granted(t, th, on("b", "two"))
		for n := range 100 {
			r := waiting(n)
			r.Host, r.Namespace = "b", "two"
			if wait := refused(t, th, r, throttle.HostBusy); wait > longest {
				t.Fatalf("want %d of another namespace comes after %s", n, wait)
			}
		}
	})
}

func TestWhatIsRememberedOfGuessesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(t, config())
		slots := []*throttle.Slot{granted(t, th, waiting(0)), granted(t, th, waiting(1))}
		const wants, bound = 20_000, 16_384
		for n := range wants {
			refused(t, th, waiting(n+2), throttle.HostBusy)
		}
		pass(time.Millisecond)
		slots[0].Release()
		advanced := 0
		for {
			w, _, ok := slots[0].Advance()
			if !ok {
				break
			}
			if advanced++; w.Want > bound+2 {
				t.Fatalf("advanced want %d", w.Want)
			}
		}
		if advanced < 100 || advanced > bound {
			t.Errorf("advanced %d", advanced)
		}
	})
}
