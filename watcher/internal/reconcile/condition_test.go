package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// lookInvalid looks at the object after its annotations were made invalid, or valid by "".
func (b *bench) lookInvalid(text string) {
	b.t.Helper()
	b.invalid(text)
	b.lookFresh()
}

// invalid makes the annotations invalid, or valid by "".
func (b *bench) invalid(text string) {
	b.object.Invalid, b.object.Written = nil, b.clock.Now()
	if text != "" {
		b.object.Invalid = errors.New(text)
	}
}

func TestAStateIsReportedOnceWhileItLasts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		b.lookInvalid("bad")
		b.clock.Step(time.Second)
	}
	b.lookInvalid("worse")
	b.Expect(b.emitted).To(HaveExactElements(
		And(HaveField("Note", "bad"), HaveField("Warning", true), HaveField("UID", BeEquivalentTo("uid"))),
		HaveField("Note", "worse"),
	))
}

func TestAStateThatCameBackHasAnEventOfAnotherName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		b.lookInvalid("bad")
		b.clock.Step(time.Second)
		b.lookInvalid("")
	}
	b.Expect(b.emitted).To(HaveLen(2))
	b.Expect(b.emitted[0].Occurrence).NotTo(Equal(b.emitted[1].Occurrence))
}

func TestManyStatesOfOneObjectAreReportedInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 200 {
		b.invalid(fmt.Sprint("bad ", n))
		b.look()
	}
	b.Expect(b.emitted).To(HaveLen(1), "within one burst")
	for n := range 200 {
		b.lookInvalid(fmt.Sprint("worse ", n))
	}
	b.Expect(b.emitted).To(HaveLen(201))
}

func TestAnEventThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	for range 2 {
		b.Expect(b.try()).To(MatchError(b.refuse))
	}
	b.refuse = nil
	b.lookFresh()
	b.Expect(b.reasons()).To(HaveExactElements("InvalidAnnotation"))
}

func TestTheEventOfAStateThatIsOverIsDroppedAndThatOfARepairIsWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	b.look()
	b.answer("k")
	b.lookFresh()
	b.refuse = errors.New("forbidden")
	for _, change := range []func(){
		func() { b.lose("k") },   // drifted
		func() { b.answer("k") }, // repaired
		func() { b.invalid("bad") },
		func() { b.invalid("") },
	} {
		change()
		b.clock.Step(coalesce)
		_ = b.try()
	}
	b.refuse = nil
	b.lookFresh()
	b.Expect(b.reasons()).To(HaveExactElements("Drifted"))
}

func TestNothingIsReportedAboutDeletedObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	_ = b.try()
	b.refuse, b.object = nil, nil
	b.lookFresh()
	b.Expect(b.emitted).To(BeEmpty())
}
