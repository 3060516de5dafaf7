package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// started is a throttle that records which keys it starts. They make a GET of one
// second.
type started struct {
	*throttle.Throttle
	t     *testing.T
	names chan string
}

func newStarted(t *testing.T, cfg throttle.Config) *started {
	t.Helper()
	return &started{Throttle: throttle.New(cfg), t: t, names: make(chan string, 100_000)}
}

// enqueue lets a key wait on host a.
func (s *started) enqueue(w throttle.Waiter, lease time.Duration) {
	w.Host = "a"
	w.Start = func(slot *throttle.Slot) {
		_, busy := s.Acquire(throttle.Request{
			Host: w.Host, Namespace: w.Key.Namespace, Slot: slot, Urgent: w.Rank == throttle.Urgent,
		})
		if busy != nil {
			s.t.Errorf("%s has no slot: %s", w.Key, busy.Cause)
			return
		}
		s.names <- w.Key.Namespace + "/" + w.Key.Name
		pass(time.Second)
	}
	w.Until = time.Now().Add(lease)
	s.Enqueue(&w)
}

// order lets everything run, and returns what was started.
func (s *started) order() []string {
	pass(time.Minute)
	var all []string
	for len(s.names) > 0 {
		all = append(all, <-s.names)
	}
	return all
}

// end ends GETs that have taken a second.
func end(slots ...*throttle.Slot) {
	pass(time.Second)
	for _, s := range slots {
		s.End()
	}
}

// waits lets a key wait for up to an hour.
func (s *started) waits(namespace, name string, rank throttle.Rank, since time.Time) {
	s.enqueue(throttle.Waiter{
		Key: pipeline.Key{Namespace: namespace, Name: name}, Want: 1, Rank: rank, Since: since,
	}, time.Hour)
}

func TestAQueueIsOrderedByRankAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.PerHost = 1
		s, now := newStarted(t, cfg), time.Now()
		slot := granted(t, s.Throttle, on("a", "one"))
		for i, rank := range []throttle.Rank{
			throttle.Refresh, throttle.Wanted, throttle.Urgent, throttle.Refresh, throttle.Wanted,
		} {
			s.waits("one", fmt.Sprint(i), rank, now.Add(-time.Duration(i)*time.Second))
		}
		end(slot)
		if got, want := s.order(), []string{"one/2", "one/4", "one/1", "one/3", "one/0"}; !slices.Equal(got, want) {
			t.Errorf("started %q, want %q", got, want)
		}
	})
}

func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.PerHost = 2
		s, now := newStarted(t, cfg), time.Now()
		slots := []*throttle.Slot{granted(t, s.Throttle, on("a", "one")), granted(t, s.Throttle, on("a", "two"))}
		for i := range 4 {
			s.waits("one", fmt.Sprint(i), throttle.Urgent, now.Add(time.Duration(i)))
		}
		s.waits("two", "0", throttle.Refresh, now.Add(time.Second))
		s.waits("two", "1", throttle.Refresh, now.Add(2*time.Second))
		end(slots...)
		order := s.order()
		if len(order) != 6 || slices.Index(order, "two/0") > 1 || slices.Index(order, "two/1") > 3 {
			t.Errorf("started %q", order)
		}
	})
}

func TestAnEditedKeyKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.PerHost = 1
		s, now := newStarted(t, cfg), time.Now()
		slot := granted(t, s.Throttle, on("a", "one"))
		for i := range 3 {
			s.waits("one", fmt.Sprint(i), throttle.Wanted, now.Add(time.Duration(i)))
		}
		edited := pipeline.Key{Namespace: "one", Name: "0"}
		s.enqueue(throttle.Waiter{
			Key: edited, Want: 2, Rank: throttle.Wanted, Since: now.Add(time.Minute),
		}, time.Hour)
		if s.Waits(edited, 1) {
			t.Error("the old want waits")
		}
		if !s.Waits(edited, 2) {
			t.Error("the new want does not wait")
		}
		end(slot)
		if got, want := s.order(), []string{"one/0", "one/1", "one/2"}; !slices.Equal(got, want) {
			t.Errorf("started %q, want %q", got, want)
		}
	})
}

func TestAKeyIsNotStartedAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarted(t, config())
		one, two := granted(t, s.Throttle, on("a", "one")), granted(t, s.Throttle, on("a", "one"))
		s.enqueue(throttle.Waiter{Key: pipeline.Key{Namespace: "one", Name: "short"}}, time.Second)
		s.waits("one", "long", throttle.Wanted, time.Now())
		pass(2 * time.Second)
		end(one, two)
		if got := s.order(); !slices.Equal(got, []string{"one/long"}) {
			t.Errorf("started %q", got)
		}
	})
}

func TestAPauseHoldsUpTheQueueUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarted(t, config())
		slot := granted(t, s.Throttle, on("a", "one"))
		slot.Pause(3 * time.Second)
		slot.End()
		s.waits("one", "0", throttle.Wanted, time.Now())
		s.waits("two", "urgent", throttle.Urgent, time.Now())
		synctest.Wait()
		if len(s.names) != 1 || <-s.names != "two/urgent" {
			t.Error("only what a person asks for is started while the host rests")
		}
		if got := s.order(); !slices.Equal(got, []string{"one/0"}) {
			t.Errorf("started %q", got)
		}
	})
}

func TestNoNamespaceFillsTheQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.PerHost = 1
		s := newStarted(t, cfg)
		slot := granted(t, s.Throttle, on("a", "one"))
		room := func(namespace string) (n int) {
			for before := -1; before < s.Queued(); n++ {
				before = s.Queued()
				s.enqueue(throttle.Waiter{
					Key: pipeline.Key{Namespace: namespace, Name: fmt.Sprint(n)}, Since: time.Now(), Bytes: 1<<20 - 512,
				}, time.Minute)
			}
			return n - 1
		}
		if one, two, three := room("one"), room("two"), room("three"); one != 16 || two != 8 || three != 4 {
			t.Errorf("%d, %d and %d keys wait", one, two, three)
		}
		end(slot)
		pass(3 * time.Minute)
		if n := s.Queued(); n != 0 {
			t.Errorf("%d keys still wait", n)
		}
	})
}

func TestStopWaitsForStartedKeysAndStartsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.PerHost = 1
		s := newStarted(t, cfg)
		slot := granted(t, s.Throttle, on("a", "one"))
		s.waits("one", "0", throttle.Wanted, time.Now())
		s.waits("one", "1", throttle.Wanted, time.Now())
		end(slot)
		synctest.Wait()
		began := time.Now()
		s.Stop()
		if took := time.Since(began); took != time.Second {
			t.Errorf("ended after %s", took)
		}
		if got := s.order(); !slices.Equal(got, []string{"one/0"}) {
			t.Errorf("started %q", got)
		}
	})
}

func TestStartedKeysCountAgainstTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.Slots, cfg.PerHost = 2, 4
		s := newStarted(t, cfg)
		one, two := granted(t, s.Throttle, on("a", "one")), granted(t, s.Throttle, on("b", "one"))
		s.waits("one", "0", throttle.Wanted, time.Now())
		s.waits("one", "1", throttle.Wanted, time.Now())
		pass(time.Second)
		one.Release()
		synctest.Wait()
		if len(s.names) > 0 {
			t.Error("started while the outcome of a GET is not published")
		}
		one.End()
		synctest.Wait()
		if len(s.names) != 1 {
			t.Errorf("started %d keys for one slot", len(s.names))
		}
		refused(t, s.Throttle, on("c", "two"), throttle.SlotsBusy)
		two.End()
		pass(time.Minute)
	})
}

// pass lets time pass in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }
