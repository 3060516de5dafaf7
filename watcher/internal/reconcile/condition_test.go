package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func (b *bench) invalid(text string) {
	b.object.Invalid = errors.New(text)
	b.object.Written = b.clock.Now()
}

func (b *bench) valid() {
	b.object.Invalid = nil
	b.object.Written = b.clock.Now()
}

func TestAStateIsReportedOnceWhileItLasts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		b.invalid("bad")
		b.lookFresh()
		b.clock.Step(time.Second)
	}
	b.invalid("worse")
	b.lookFresh()
	if len(b.emitted) != 2 || b.emitted[0].Note != "bad" || b.emitted[1].Note != "worse" || !b.emitted[0].Warning ||
		b.emitted[0].UID != "uid" {
		t.Errorf("emitted %+v", b.emitted)
	}
}

func TestAStateThatCameBackHasAnEventOfAnotherName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		b.invalid("bad")
		b.lookFresh()
		b.clock.Step(time.Second)
		b.valid()
		b.lookFresh()
	}
	if len(b.emitted) != 2 || b.emitted[0].Occurrence == b.emitted[1].Occurrence {
		t.Errorf("emitted %+v", b.emitted)
	}
}

func TestManyStatesOfOneObjectAreReportedInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for n := range 200 {
		b.invalid(fmt.Sprint("bad ", n))
		b.look()
	}
	if len(b.emitted) != 1 {
		t.Fatalf("emitted %d times within one burst", len(b.emitted))
	}
	for n := range 200 {
		b.invalid(fmt.Sprint("worse ", n))
		b.lookFresh()
	}
	if len(b.emitted) != 201 {
		t.Errorf("emitted %d times", len(b.emitted))
	}
}

func TestAnEventThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	for range 2 {
		if _, err := b.Reconcile(t.Context(), cm); !errors.Is(err, b.refuse) {
			t.Fatalf("got %v", err)
		}
	}
	b.refuse = nil
	if b.lookFresh(); !slices.Equal(b.reasons(), []string{"InvalidAnnotation"}) {
		t.Errorf("emitted %v", b.reasons())
	}
}

func TestTheEventOfAStateThatIsOverIsDroppedAndThatOfARepairIsWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	b.look()
	b.answer("k")
	b.lookFresh()
	b.refuse = errors.New("forbidden")
	reconcile := func() {
		b.clock.Step(coalesce)
		_, _ = b.Reconcile(t.Context(), cm)
	}
	b.lose("k")
	reconcile() // drifted
	b.answer("k")
	reconcile() // repaired
	b.invalid("bad")
	reconcile()
	b.valid()
	reconcile()
	b.refuse = nil
	if b.lookFresh(); !slices.Equal(b.reasons(), []string{"Drifted"}) {
		t.Errorf("emitted %v", b.reasons())
	}
}

func TestNothingIsReportedAboutDeletedObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.refuse = errors.New("forbidden")
	b.invalid("bad")
	_, _ = b.Reconcile(t.Context(), cm)
	b.refuse, b.object = nil, nil
	if b.lookFresh(); len(b.emitted) != 0 {
		t.Errorf("emitted %+v", b.emitted)
	}
}
