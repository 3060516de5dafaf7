package reconcile_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// expectRepair expects an immediate repair of the key.
func (b *bench) expectRepair(again time.Duration) {
	b.t.Helper()
	b.Expect(again).To(BeZero(), "the repair waits")
	b.Expect(b.cause("k")).To(Equal(v1.Cause_CAUSE_DRIFT))
}

// repairAll removes and repairs the key n times.
func repairAll(b *bench, n int) {
	b.t.Helper()
	b.request("https://example.com", "k")
	b.reconcile()
	b.write("k")
	for range n {
		b.removeKey("k")
		b.expectRepair(b.reconcileLater())
		b.write("k")
		b.reconcileLater()
	}
}

func TestRepairsOfAContestedKeySlowDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	for _, seconds := range []int{10, 20, 40, 80, 160, 320, 600, 600} {
		pause := time.Duration(seconds) * time.Second
		before := b.published()
		b.removeKey("k")
		// Two reconciles have passed since the last repair.
		b.Expect(b.reconcileLater()).To(Equal(pause - 2*coalesce))
		b.clock.Step(pause - 2*coalesce - time.Nanosecond)
		b.Expect(b.reconcile()).To(Equal(time.Nanosecond))
		b.Expect(b.published()).To(Equal(before))
		b.clock.Step(time.Nanosecond)
		b.Expect(b.reconcile()).To(BeZero())
		b.Expect(b.published()).To(Equal(before + 1))
		b.write("k")
		b.reconcileLater()
	}
	b.Expect(b.reasons()).To(HaveExactElements("Drifted", "Drifted", "Drifted", "RepairBackOff"))
}

func TestTheEventAboutAContestedKeyNamesItsManager(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	b.object.Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "flux/Apply/2026-01-02T03:04:05Z"}
	b.reconcileLater()
	b.Expect(b.emitted[len(b.emitted)-1].Note).To(Equal("key k was changed by field manager flux; " +
		"remove the key from its manifest; repeated changes are repaired at growing intervals"))
}

func TestRepairsAreImmediateAgainAfterAQuietPeriod(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 3)
	b.clock.Step(20*time.Minute + time.Second)
	b.removeKey("k")
	b.expectRepair(b.reconcile())
}

func TestARepairThatCannotBePublishedDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairAll(b, 1)
	b.removeKey("k")
	b.broker.Stop()
	for range 5 {
		b.clock.Step(coalesce)
		b.Expect(b.try()).NotTo(Succeed())
	}
	b.Expect(b.broker.Start()).To(Succeed())
	before := b.reasons()
	b.expectRepair(b.awaitBroker())
	b.Expect(b.reasons()).To(And(Equal(before), Not(ContainElement("RepairBackOff"))))
}

func TestReportsSlowDownIfTheStatusIsReverted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.object.Invalid = errors.New("wrong")
	sentence := b.object.Request.ProblemText(b.object.Invalid)
	b.reconcileLater()
	for times := range 5 {
		b.Expect(b.requests()).To(Equal(times + 1))
		b.setProblem(sentence)
		b.reconcileLater()
		b.setProblem("")
		again := b.reconcileLater()
		b.Expect(b.requests()).To(Equal(times+1), "no immediate repetition")
		b.Expect(again).To(BeNumerically(">=", min(repeat<<times, time.Hour)-3*coalesce))
		b.clock.Step(again)
		b.reconcile()
	}
	b.setProblem(sentence)
	b.reconcileLater()
	b.clock.Step(3 * time.Hour)
	b.reconcile()
	before := b.requests()
	b.setProblem("")
	b.reconcileLater()
	b.Expect(b.requests()).To(Equal(before+1), "after a long pause")
}
