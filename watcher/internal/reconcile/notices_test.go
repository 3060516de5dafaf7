package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// reconcileInvalid reconciles after invalid.
func (b *bench) reconcileInvalid(text string) {
	b.t.Helper()
	b.invalid(text)
	b.reconcileLater()
}

// invalid makes the annotations invalid (valid if text is empty).
func (b *bench) invalid(text string) {
	b.object.Invalid, b.object.Written = nil, b.clock.Now()
	if text != "" {
		b.object.Invalid = errors.New(text)
	}
}

func TestAConditionIsReportedOnceWhileItLasts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		b.reconcileInvalid("bad")
		b.clock.Step(time.Second)
	}
	b.reconcileInvalid("worse")
	b.Expect(b.emitted).To(HaveExactElements(
		And(HaveField("Note", "bad"), HaveField("Warning", true), HaveField("UID", BeEquivalentTo("uid"))),
		HaveField("Note", "worse"),
	))
}

func TestARecurringConditionHasANewEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		b.reconcileInvalid("bad")
		b.clock.Step(time.Second)
		b.reconcileInvalid("")
	}
	b.Expect(b.emitted).To(HaveLen(2))
	b.Expect(b.emitted[0].Occurrence).NotTo(Equal(b.emitted[1].Occurrence))
}

func TestABurstOfConditionsIsCoalesced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 200 {
		b.invalid(fmt.Sprint("bad ", n))
		b.reconcile()
	}
	b.Expect(b.emitted).To(HaveLen(1), "within one burst")
	for n := range 200 {
		b.reconcileInvalid(fmt.Sprint("worse ", n))
	}
	b.Expect(b.emitted).To(HaveLen(201))
}

func TestAFailedEventIsWrittenLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	for range 2 {
		b.Expect(b.try()).To(MatchError(b.refuse))
	}
	b.refuse = nil
	b.reconcileLater()
	b.Expect(b.reasons()).To(HaveExactElements("InvalidAnnotation"))
}

func TestOnlyEventsOfDriftsOutliveTheirCondition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.reconcile()
	b.write("k")
	b.reconcileLater()
	b.refuse = errors.New("forbidden")
	for _, change := range []func(){
		func() { b.removeKey("k") }, // drifted
		func() { b.write("k") },     // repaired
		func() { b.invalid("bad") },
		func() { b.invalid("") },
	} {
		change()
		b.clock.Step(coalesce)
		_ = b.try()
	}
	b.refuse = nil
	b.reconcileLater()
	b.Expect(b.reasons()).To(HaveExactElements("Drifted"))
}

func TestNothingIsReportedAboutDeletedObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	_ = b.try()
	b.refuse, b.object = nil, nil
	b.reconcileLater()
	b.Expect(b.emitted).To(BeEmpty())
}
