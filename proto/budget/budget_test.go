package budget_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/budget"
)

// clock is a clock that tests advance.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newBudget(t *testing.T, burst int64, refill time.Duration) (*budget.Budget, *clock) {
	t.Helper()
	c := &clock{at: time.Unix(1_000_000_000, 0)}
	return budget.New(budget.Config{Burst: burst, Refill: refill}, c.now), c
}

func expectShortage(t *testing.T, when string, got, want *budget.Shortage) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", when, got, want)
	}
}

func TestTakeLimitsEachNamespaceSeparately(t *testing.T) {
	first, later := &budget.Shortage{First: true, Wait: 2 * time.Second}, &budget.Shortage{Wait: time.Second}
	b, c := newBudget(t, 20, 20*time.Second)
	for i, step := range []struct {
		after     time.Duration
		namespace string
		takes     int
		want      *budget.Shortage
	}{
		{0, "greedy", 20, nil},
		{0, "greedy", 1, first},
		{0, "modest", 1, nil},
		{time.Second, "greedy", 1, later}, // before a tenth is refilled
		{time.Second, "greedy", 2, nil},
		{0, "greedy", 1, first},
	} {
		c.at = c.at.Add(step.after)
		for range step.takes {
			expectShortage(t, fmt.Sprint("step ", i), b.Take(step.namespace, 1), step.want)
		}
	}
}

func TestTakeWaitsUntilTheRefusedUseFits(t *testing.T) {
	b, c := newBudget(t, 20, 20*time.Second)
	b.Take("ns", 12)
	for i := range 3 {
		expectShortage(t, "does not fit", b.Take("ns", 10), &budget.Shortage{First: i == 0, Wait: 2 * time.Second})
	}
	c.at = c.at.Add(2 * time.Second)
	expectShortage(t, "fits", b.Take("ns", 10), nil)
}

func TestTakeOfMoreThanTheBudgetTakesAllOfIt(t *testing.T) {
	b, _ := newBudget(t, 10, time.Second)
	if s := b.Take("ns", 1000); s != nil {
		t.Fatalf("would be refused forever: %+v", s)
	}
	if b.Take("ns", 1) == nil {
		t.Fatal("nothing was taken")
	}
}

func TestCheckSpacesRefusedCallers(t *testing.T) {
	b, c := newBudget(t, 100, 100*time.Second)
	if s := b.Check("ns"); s != nil {
		t.Fatalf("within the budget: %+v", s)
	}
	for range 50 { // all passed Check before the first was spent
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
		t.Fatalf("after the refill: %+v", s)
	}
}

func TestADebtIsWhatWasUsed(t *testing.T) {
	b, c := newBudget(t, 100, 100*time.Second)
	b.Spend("ns", 500)
	c.at = c.at.Add(399 * time.Second)
	if b.Check("ns") == nil {
		t.Error("the debt is capped")
	}
	c.at = c.at.Add(12 * time.Second)
	if s := b.Check("ns"); s != nil {
		t.Errorf("after the refill: %+v", s)
	}
}

func TestNoLimit(t *testing.T) {
	b, _ := newBudget(t, 0, 0)
	b.Spend("ns", 1<<40)
	if b.Check("ns") != nil || b.Take("ns", 1<<40) != nil {
		t.Error("limited")
	}
}

func TestIdleNamespacesAreDropped(t *testing.T) {
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
