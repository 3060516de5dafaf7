package reconcile_test

import (
	"slices"
	"testing"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// repairAll takes a bench to the point where its key was repaired n times.
func repairAll(b *bench, n int) {
	b.t.Helper()
	b.ask("https://example.com", "k")
	b.look()
	b.answer("k")
	for range n {
		b.lose("k")
		if again := b.lookFresh(); again != 0 || b.cause("k") != v1.Cause_CAUSE_DRIFT {
			b.t.Fatalf("repair waits %s", again)
		}
		b.answer("k")
		b.lookFresh()
	}
}

func TestRepairsOfAContestedKeySlowDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	for _, seconds := range []int{10, 20, 40, 80, 160, 320, 600, 600} {
		pause := time.Duration(seconds) * time.Second
		before := b.published()
		b.lose("k")
		// Two looks have passed since the last repair.
		if again := b.lookFresh(); again != pause-2*coalesce {
			t.Fatalf("repair waits %s, want %s", again, pause-2*coalesce)
		}
		b.clock.Step(pause - 2*coalesce - time.Nanosecond)
		if again := b.look(); again != time.Nanosecond || b.published() != before {
			t.Fatalf("repair waits %s", again)
		}
		b.clock.Step(time.Nanosecond)
		if again := b.look(); again != 0 || b.published() != before+1 {
			t.Fatalf("repair is not made, waits %s", again)
		}
		b.answer("k")
		b.lookFresh()
	}
	if want := []string{"Drifted", "Drifted", "Drifted", "Contested"}; !slices.Equal(b.reasons(), want) {
		t.Errorf("emitted %v, want %v", b.reasons(), want)
	}
}

func TestRepairsAreImmediateAgainAfterAQuietTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	b.clock.Step(20*time.Minute + time.Second)
	b.lose("k")
	if again := b.look(); again != 0 || b.cause("k") != v1.Cause_CAUSE_DRIFT {
		t.Errorf("repair waits %s", again)
	}
}

func TestARepairThatCannotBePublishedDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 1)
	b.lose("k")
	b.broker.Stop()
	for range 5 {
		b.clock.Step(coalesce)
		if _, err := b.Reconcile(t.Context(), cm); err == nil {
			t.Fatal("published without a broker")
		}
	}
	if err := b.broker.Start(); err != nil {
		t.Fatal(err)
	}
	before := b.emitted
	if again := b.awaitBroker(); again != 0 || b.cause("k") != v1.Cause_CAUSE_DRIFT {
		t.Errorf("repair waits %s", again)
	}
	if len(b.emitted) != len(before) || slices.Contains(b.reasons(), "Contested") {
		t.Errorf("emitted %v", b.reasons())
	}
}

func TestTheShortestWaitDecidesWhenToLookAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "a", "b")
	b.look()
	b.answer("a")
	b.answer("b")
	for range 4 {
		b.lose("a")
		b.clock.Step(10 * time.Second)
		b.look()
		b.answer("a")
		b.lookFresh()
	}
	for range 3 {
		b.lose("b")
		b.lookFresh()
		b.answer("b")
		b.lookFresh()
	}
	b.lose("a")
	b.lose("b")
	if again := b.lookFresh(); again != 10*time.Second-2*coalesce {
		t.Errorf("looks again after %s", again)
	}
}
