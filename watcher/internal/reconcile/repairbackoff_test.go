package reconcile_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// expectRepair expects the repair of the key at once.
func (b *bench) expectRepair(again time.Duration) {
	b.t.Helper()
	b.Expect(again).To(BeZero(), "the repair waits")
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_DRIFT))
}

// repairAll takes a bench to the point where its key was repaired n times.
func repairAll(b *bench, n int) {
	b.t.Helper()
	b.ask("https://example.com", "k")
	b.look()
	b.answer("k")
	for range n {
		b.lose("k")
		b.expectRepair(b.lookFresh())
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
		b.Expect(b.lookFresh()).To(Equal(pause - 2*coalesce))
		b.clock.Step(pause - 2*coalesce - time.Nanosecond)
		b.Expect(b.look()).To(Equal(time.Nanosecond))
		b.Expect(b.published()).To(Equal(before))
		b.clock.Step(time.Nanosecond)
		b.Expect(b.look()).To(BeZero())
		b.Expect(b.published()).To(Equal(before + 1))
		b.answer("k")
		b.lookFresh()
	}
	b.Expect(b.reasons()).To(HaveExactElements("Drifted", "Drifted", "Drifted", "Contested"))
}

func TestRepairsAreImmediateAgainAfterAQuietTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	b.clock.Step(20*time.Minute + time.Second)
	b.lose("k")
	b.expectRepair(b.look())
}

func TestARepairThatCannotBePublishedDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 1)
	b.lose("k")
	b.broker.Stop()
	for range 5 {
		b.clock.Step(coalesce)
		b.Expect(b.try()).NotTo(Succeed())
	}
	b.Expect(b.broker.Start()).To(Succeed())
	before := b.reasons()
	b.expectRepair(b.awaitBroker())
	b.Expect(b.reasons()).To(And(Equal(before), Not(ContainElement("Contested"))))
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
	b.Expect(b.lookFresh()).To(Equal(10*time.Second - 2*coalesce))
}
