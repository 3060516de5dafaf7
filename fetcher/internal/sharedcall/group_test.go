package sharedcall_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/sharedcall"
)

const joinWithin = 250 * time.Millisecond

// trial is a group in virtual time.
type trial struct {
	*testing.T
	*sharedcall.Group[string, int]
}

// try runs a test of a group in a bubble.
func try(t *testing.T, test func(*trial)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&trial{t, sharedcall.New[string, int](sharedcall.Config{
			Window: time.Second, JoinWithin: joinWithin, Entries: 3, Bytes: 100,
		}, time.Now)})
	})
}

// counter returns a function that takes a while and returns how often it was called.
func counter(takes time.Duration, size int64, keep bool) func() sharedcall.Result[int] {
	var mu sync.Mutex
	n := 0
	return func() sharedcall.Result[int] {
		mu.Lock()
		n++
		number := n
		mu.Unlock()
		pass(takes)
		return sharedcall.Result[int]{Value: number, Size: size, Reuse: keep}
	}
}

func (t *trial) expect(key string, fn func() sharedcall.Result[int], value int, shared bool) {
	t.Helper()
	got, wasShared, err := t.Do(key, time.Time{}, fn)
	if err != nil || got != value || wasShared != shared {
		t.Errorf("Do(%q) = %d, shared %v, %v, want %d, shared %v", key, got, wasShared, err, value, shared)
	}
}

func TestCallersShareARunningCall(t *testing.T) {
	try(t, func(t *trial) {
		fn := counter(joinWithin/2, 1, true)
		var wg sync.WaitGroup
		wg.Go(func() { t.expect("a", fn, 1, false) })
		synctest.Wait()
		for range 10 {
			wg.Go(func() { t.expect("a", fn, 1, true) })
		}
		wg.Go(func() { t.expect("b", counter(0, 1, true), 1, false) })
		wg.Wait()
	})
}

func TestOutcomesAreSharedWithinTheWindow(t *testing.T) {
	try(t, func(t *trial) {
		fn := counter(0, 1, true)
		t.expect("a", fn, 1, false)
		pass(time.Second)
		t.expect("a", fn, 1, true)
		pass(time.Millisecond)
		t.expect("a", fn, 2, false)
	})
}

func TestAnOlderCallIsNotShared(t *testing.T) {
	try(t, func(t *trial) {
		slow, fn := counter(2*joinWithin, 1, true), counter(0, 10, true)
		var wg sync.WaitGroup
		wg.Go(func() { t.expect("a", slow, 1, false) })
		synctest.Wait()
		pass(joinWithin / 2)
		notBefore := time.Now()
		for number, shared := range []bool{false, true} { // the second joins the first
			if got, wasShared, err := t.Do("a", notBefore, fn); got != 1 || wasShared != shared || err != nil {
				t.Errorf("%d: Do() = %d, shared %v, %v", number, got, wasShared, err)
			}
		}
		wg.Wait() // the older call does not replace the newer outcome
		t.expect("a", fn, 1, true)
		pass(time.Millisecond)
		if got, shared, err := t.Do("a", time.Now(), fn); got != 2 || shared || err != nil {
			t.Errorf("after the end: Do() = %d, shared %v, %v", got, shared, err)
		}
		pass(time.Hour)
		t.expect("a", fn, 3, false)
	})
}

func TestAnOutcomeWithoutReuseIsNotKept(t *testing.T) {
	try(t, func(t *trial) {
		fn := counter(0, 1, false)
		t.expect("a", fn, 1, false)
		t.expect("a", fn, 2, false)
	})
}

func TestCallersWaitOnlyUntilTheJoinLimit(t *testing.T) {
	try(t, func(t *trial) {
		fn := counter(10*time.Second, 1, true)
		var wg sync.WaitGroup
		wg.Go(func() { t.expect("a", fn, 1, false) })
		synctest.Wait()
		for _, waits := range []time.Duration{joinWithin, 0} { // the second caller comes after the limit
			began := time.Now()
			if _, _, err := t.Do("a", time.Time{}, fn); !errors.Is(err, sharedcall.ErrSlow) {
				t.Errorf("Do() = %v, want ErrSlow", err)
			}
			if took := time.Since(began); took != waits {
				t.Errorf("waited for %s instead of %s", took, waits)
			}
		}
		wg.Wait()
		t.expect("a", fn, 1, true)
	})
}

func TestMemoryIsLimited(t *testing.T) {
	try(t, func(t *trial) {
		big, small := counter(0, 60, true), counter(0, 1, true)
		t.expect("a", big, 1, false)
		t.expect("b", big, 2, false) // 120 bytes, so a is dropped
		t.expect("b", big, 2, true)
		t.expect("a", big, 3, false) // and b is dropped
		for _, key := range []string{"c", "d", "e"} {
			t.expect(key, small, int(key[0]-'b'), false)
		}
		t.expect("c", small, 1, true)
		t.expect("a", big, 4, false) // the fourth entry pushed it out
		t.expect("huge", counter(0, 101, true), 1, false)
		t.expect("huge", counter(0, 101, true), 1, false)
	})
}

func TestAPanicLeavesNoCallerWaiting(t *testing.T) {
	try(t, func(t *trial) {
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			_, _, _ = t.Do("a", time.Time{}, func() sharedcall.Result[int] { pass(joinWithin / 2); panic("no") })
		})
		synctest.Wait()
		if _, _, err := t.Do("a", time.Time{}, counter(0, 1, true)); !errors.Is(err, sharedcall.ErrSlow) {
			t.Errorf("a call that panicked was shared: %v", err)
		}
		wg.Wait()
		t.expect("a", counter(0, 1, true), 1, false)
	})
}

func TestFunctionsAreCalledAfterTheCall(t *testing.T) {
	try(t, func(t *trial) {
		var called atomic.Int32
		var wg sync.WaitGroup
		wg.Go(func() { t.expect("a", counter(time.Second, 1, true), 1, false) })
		synctest.Wait()
		for range 5 {
			t.After("a", func() { called.Add(1) })
		}
		if called.Load() > 0 {
			t.Error("called before the end of the call")
		}
		wg.Wait()
		if called.Load() != 5 {
			t.Errorf("%d functions were called", called.Load())
		}
		t.After("a", func() { called.Add(1) })
		if called.Load() != 6 {
			t.Error("not called after the end of the call")
		}
	})
}

// pass lets time pass in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }
