package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

// setProblem sets or clears the problem in the status.
func (b *bench) setProblem(sentence string) {
	s := status.Status{Keys: map[string]status.Entry{}}
	if sentence != "" {
		s.Problem = &status.Problem{Error: "InvalidAnnotation", Message: sentence}
	}
	b.object.Status = annotated.EntriesOf(s, nil)
}

// holdUnrequested makes the object hold n keys and request none.
func (b *bench) holdUnrequested(n int) {
	s := status.Status{Keys: map[string]status.Entry{}}
	for i := range n {
		s.Keys[fmt.Sprint("k", i)] = status.Entry{SHA256: sum}
	}
	b.object.Status, b.object.Request = annotated.EntriesOf(s, nil), annotation.Request{}
	b.object.Owned = annotation.Ownership{State: annotation.Ours}
}

// A forged status may have any number of entries.
func TestOneMessageRemovesAllKeysThatNoPairNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdUnrequested(50)
	b.reconcile()
	b.Expect(b.requests()).To(Equal(1))
	b.Expect(b.published()).To(BeZero())
}

// In a namespace without the writer's Role, every removal is refused.
func TestRefusedRemovalsAreRepeatedAtGrowingIntervals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdUnrequested(1)
	b.reconcile()
	for range 50 {
		b.clock.Step(repeat)
		b.reconcile()
	}
	b.Expect(b.requests()).To(And(BeNumerically(">=", 5), BeNumerically("<=", 12)), "in 50 intervals")
}

func TestReportsSlowDownIfTheStatusIsReverted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.object.Invalid = errors.New("wrong")
	sentence := b.object.Request.Problem(b.object.Invalid)
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
