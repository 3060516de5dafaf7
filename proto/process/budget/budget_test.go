package budget_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/process/budget"
)

// clock is a clock that tests advance.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newBudget(t *testing.T, burst int64, refill time.Duration) (*budget.Budget, *clock) {
	t.Helper()
	c := &clock{at: time.Unix(1_000_000_000, 0)}
	return budget.New(budget.Config{Burst: burst, Refill: refill}, c.now), c
}

func TestTakeBoundsEachNamespaceByItself(t *testing.T) {
	b, c := newBudget(t, 20, 20*time.Second)
	for i := range 20 {
		if s := b.Take("greedy", 1); s != nil {
			t.Fatalf("take %d: %+v", i, s)
		}
	}
	if s := b.Take("greedy", 1); s == nil || !s.First || s.Wait != 2*time.Second {
		t.Fatalf("over the budget: %+v, want the first shortage, for 2 s", s)
	}
	if s := b.Take("modest", 1); s != nil {
		t.Fatalf("another namespace: %+v", s)
	}
	c.at = c.at.Add(time.Second)
	if s := b.Take("greedy", 1); s == nil || s.First {
		t.Fatalf("before a tenth is there again: %+v, want a shortage that is not the first", s)
	}
	c.at = c.at.Add(time.Second)
	for i := range 2 {
		if s := b.Take("greedy", 1); s != nil {
			t.Fatalf("take %d of what has come back: %+v", i, s)
		}
	}
	if s := b.Take("greedy", 1); s == nil || !s.First {
		t.Fatalf("over the budget again: %+v, want a first shortage", s)
	}
}

func TestTakeWaitsForWhatDidNotFit(t *testing.T) {
	b, c := newBudget(t, 20, 20*time.Second)
	b.Take("ns", 12)
	for i := range 3 {
		if s := b.Take("ns", 10); s == nil || s.First != (i == 0) || s.Wait != 2*time.Second {
			t.Fatalf("take %d: %+v, want a shortage of 2 s, the first of them once", i, s)
		}
	}
	c.at = c.at.Add(2 * time.Second)
	if s := b.Take("ns", 10); s != nil {
		t.Fatalf("when it fits: %+v", s)
	}
}

func TestTakeOfMoreThanAllTakesAll(t *testing.T) {
	b, _ := newBudget(t, 10, time.Second)
	if s := b.Take("ns", 1000); s != nil {
		t.Fatalf("would never be possible: %+v", s)
	}
	if b.Take("ns", 1) == nil {
		t.Fatal("nothing was taken")
	}
}

func TestCheckGivesEachATimeOfItsOwn(t *testing.T) {
	b, c := newBudget(t, 100, 100*time.Second)
	if s := b.Check("ns"); s != nil {
		t.Fatalf("within the budget: %+v", s)
	}
	for range 50 { // all were looked for before the first was there
		b.Spend("ns", 10)
	}
	// 400 are missing and refilled in 400 s.
	var last time.Duration
	for i := range 5 {
		s := b.Check("ns")
		if s == nil || s.First != (i == 0) || s.Wait < 400*time.Second {
			t.Fatalf("check %d: %+v", i, s)
		}
		if gap := s.Wait - last; i > 0 && (gap < 9*time.Second || gap > 11*time.Second) {
			t.Errorf("check %d comes %v after the one before, want about 10 s", i, gap)
		}
		last = s.Wait
	}
	c.at = c.at.Add(402 * time.Second)
	if s := b.Check("ns"); s != nil {
		t.Fatalf("when what was missing has come back: %+v", s)
	}
}

func TestNoBound(t *testing.T) {
	b, _ := newBudget(t, 0, 0)
	b.Spend("ns", 1<<40)
	if b.Check("ns") != nil || b.Take("ns", 1<<40) != nil {
		t.Error("bounded")
	}
}

func TestIdleNamespacesAreForgotten(t *testing.T) {
	b, c := newBudget(t, 10, time.Second)
	b.Take("used up", 10)
	for i := range 100_000 {
		c.at = c.at.Add(time.Millisecond)
		b.Take(fmt.Sprint("ns-", i), 1)
	}
	if n := budget.Namespaces(b); n > 4096 {
		t.Errorf("%d namespaces are kept", n)
	}
}
