package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// enqueue queues a key for host a.
func (t *trial) enqueue(w throttle.QueuedKey, lease time.Duration) {
	w.Host = "a"
	w.Start = func(slot *throttle.Ticket) {
		if wait := slot.Acquire(); wait != nil {
			t.Errorf("%s has no slot: %s", w.Key, wait.For)
			return
		}
		t.names <- w.Key.Namespace + "/" + w.Key.Name
		pass(time.Second)
	}
	w.Until = time.Now().Add(lease)
	t.Enqueue(&w)
}

// order lets all keys run, and returns them in the order of their starts.
func (t *trial) order() []string {
	pass(time.Minute)
	var all []string
	for len(t.names) > 0 {
		all = append(all, <-t.names)
	}
	return all
}

// starts expects exactly these keys to be started, in this order.
func (t *trial) starts(want ...string) {
	t.Helper()
	if got := t.order(); !slices.Equal(got, want) {
		t.Errorf("started %q, want %q", got, want)
	}
}

// end ends GETs after a second.
func end(slots ...*throttle.Ticket) {
	pass(time.Second)
	for _, s := range slots {
		s.End()
	}
}

// queue queues a key with a lease of an hour.
func (t *trial) queue(namespace, name string, rank throttle.Rank, since time.Time) {
	t.enqueue(throttle.QueuedKey{
		Key: pipeline.Key{Namespace: namespace, Name: name}, Want: 1, Rank: rank, Since: since,
	}, time.Hour)
}

func TestAQueueIsOrderedByRankAndTime(t *testing.T) {
	try(t, perHost(1), func(t *trial) {
		now := time.Now()
		slot := t.granted(on("a", "one"))
		for i, rank := range []throttle.Rank{
			throttle.Refresh, throttle.Wanted, throttle.Urgent, throttle.Refresh, throttle.Wanted,
		} {
			t.queue("one", fmt.Sprint(i), rank, now.Add(-time.Duration(i)*time.Second))
		}
		end(slot)
		t.starts("one/2", "one/4", "one/1", "one/3", "one/0")
	})
}

func TestNamespacesTakeTurns(t *testing.T) {
	try(t, perHost(2), func(t *trial) {
		now := time.Now()
		slots := []*throttle.Ticket{t.granted(on("a", "one")), t.granted(on("a", "two"))}
		for i := range 4 {
			t.queue("one", fmt.Sprint(i), throttle.Urgent, now.Add(time.Duration(i)))
		}
		t.queue("two", "0", throttle.Refresh, now.Add(time.Second))
		t.queue("two", "1", throttle.Refresh, now.Add(2*time.Second))
		end(slots...)
		order := t.order()
		if len(order) != 6 || slices.Index(order, "two/0") > 1 || slices.Index(order, "two/1") > 3 {
			t.Errorf("started %q", order)
		}
	})
}

func TestAnEditedKeyKeepsItsPlaceInTheQueue(t *testing.T) {
	try(t, perHost(1), func(t *trial) {
		now := time.Now()
		slot := t.granted(on("a", "one"))
		for i := range 3 {
			t.queue("one", fmt.Sprint(i), throttle.Wanted, now.Add(time.Duration(i)))
		}
		edited := pipeline.Key{Namespace: "one", Name: "0"}
		t.enqueue(throttle.QueuedKey{
			Key: edited, Want: 2, Rank: throttle.Wanted, Since: now.Add(time.Minute),
		}, time.Hour)
		if t.IsQueued(edited, 1) {
			t.Error("the old want is queued")
		}
		if !t.IsQueued(edited, 2) {
			t.Error("the new want is not queued")
		}
		end(slot)
		t.starts("one/0", "one/1", "one/2")
	})
}

func TestAKeyIsNotStartedAfterItsLease(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		one, two := t.granted(on("a", "one")), t.granted(on("a", "one"))
		t.enqueue(throttle.QueuedKey{Key: pipeline.Key{Namespace: "one", Name: "short"}}, time.Second)
		t.queue("one", "long", throttle.Wanted, time.Now())
		pass(2 * time.Second)
		end(one, two)
		t.starts("one/long")
	})
}

func TestAPauseStopsTheQueueExceptForAnUrgentKey(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		slot := t.granted(on("a", "one"))
		slot.Pause(3 * time.Second)
		slot.End()
		t.queue("one", "0", throttle.Wanted, time.Now())
		t.queue("two", "urgent", throttle.Urgent, time.Now())
		synctest.Wait()
		if len(t.names) != 1 || <-t.names != "two/urgent" {
			t.Error("not only the urgent key was started during the pause")
		}
		t.starts("one/0")
	})
}

func TestNoNamespaceFillsTheQueues(t *testing.T) {
	try(t, perHost(1), func(t *trial) {
		slot := t.granted(on("a", "one"))
		room := func(namespace string) (n int) {
			for before := -1; before < t.Queued(); n++ {
				before = t.Queued()
				t.enqueue(throttle.QueuedKey{
					Key: pipeline.Key{Namespace: namespace, Name: fmt.Sprint(n)}, Since: time.Now(), Bytes: 1<<20 - 512,
				}, time.Minute)
			}
			return n - 1
		}
		if one, two, three := room("one"), room("two"), room("three"); one != 16 || two != 8 || three != 4 {
			t.Errorf("%d, %d and %d keys are queued", one, two, three)
		}
		end(slot)
		pass(3 * time.Minute)
		if n := t.Queued(); n != 0 {
			t.Errorf("%d keys are still queued", n)
		}
	})
}

func TestAHeldKeyStartsLaterAndCountsAgainstTheMemory(t *testing.T) {
	try(t, perHost(3), func(t *trial) {
		until := time.Now().Add(10 * time.Minute)
		held := func(name string, bytes int) *throttle.QueuedKey {
			return &throttle.QueuedKey{
				Key: pipeline.Key{Namespace: "one", Name: name}, Host: "a", Want: 1, Until: until, Bytes: bytes - 512,
				Start: func(*throttle.Ticket) { t.names <- name },
			}
		}
		for i := range 17 {
			t.Hold(held(fmt.Sprint(i), 1<<20))
		}
		if n := t.Queued(); n != 16 {
			t.Errorf("%d keys of one MiB are held", n)
		}
		t.Hold(held("0", 512))    // it was edited, or its lease has ended
		t.Enqueue(held("1", 512)) // its lease has ended
		t.starts()
		t.Unhold(pipeline.Key{Namespace: "one", Name: "1"})
		t.Unhold(pipeline.Key{Namespace: "one", Name: "1"})
		t.Unhold(pipeline.Key{Namespace: "one", Name: "16"})
		t.starts("1")
		for i := range 16 {
			t.Unhold(pipeline.Key{Namespace: "one", Name: fmt.Sprint(i)})
		}
		if n := len(t.order()); n != 15 || t.Queued() != 0 {
			t.Errorf("%d keys were started, and %d are left", n, t.Queued())
		}
	})
}

func TestStopWaitsForStartedKeysAndStartsNoMore(t *testing.T) {
	try(t, perHost(1), func(t *trial) {
		slot := t.granted(on("a", "one"))
		t.queue("one", "0", throttle.Wanted, time.Now())
		t.queue("one", "1", throttle.Wanted, time.Now())
		end(slot)
		synctest.Wait()
		began := time.Now()
		t.Stop()
		if took := time.Since(began); took != time.Second {
			t.Errorf("stopped after %s", took)
		}
		t.starts("one/0")
	})
}

func TestStartedKeysCountAgainstTheSlots(t *testing.T) {
	cfg := perHost(4)
	cfg.Slots = 2
	try(t, cfg, func(t *trial) {
		one, two := t.granted(on("a", "one")), t.granted(on("b", "one"))
		t.queue("one", "0", throttle.Wanted, time.Now())
		t.queue("one", "1", throttle.Wanted, time.Now())
		pass(time.Second)
		one.Release()
		synctest.Wait()
		if len(t.names) > 0 {
			t.Error("started before the outcome of a GET was published")
		}
		one.End()
		synctest.Wait()
		if len(t.names) != 1 {
			t.Errorf("started %d keys for one slot", len(t.names))
		}
		t.refused(on("c", "two"), v1.WaitsFor_WAITS_FOR_SLOTS)
		two.End()
		pass(time.Minute)
	})
}
