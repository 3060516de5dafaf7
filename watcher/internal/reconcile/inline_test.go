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

// explain lets the object hold what is wrong with its annotations, or nothing.
func (b *bench) explain(sentence string) {
	s := status.Status{Keys: map[string]status.Entry{}}
	if sentence != "" {
		s.Problem = &status.Problem{Error: "InvalidAnnotation", Message: sentence}
	}
	b.object.Status = annotated.EntriesOf(s, nil)
}

// hold lets the object hold n keys, and ask for none.
func (b *bench) hold(n int) {
	s := status.Status{Keys: map[string]status.Entry{}}
	for i := range n {
		s.Keys[fmt.Sprint("k", i)] = status.Entry{SHA256: sum}
	}
	b.object.Status, b.object.Request = annotated.EntriesOf(s, nil), annotation.Request{}
	b.object.Owned = annotation.Ownership{State: annotation.Ours}
}

// Whoever may write a status chooses how many entries it has.
func TestOneMessageRemovesAllKeysThatNoPairNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.hold(50)
	b.look()
	b.Expect(b.requests()).To(Equal(1))
	b.Expect(b.published()).To(BeZero())
}

// A namespace without the writer's Role has its removals refused for as long as it lasts.
func TestRefusedRemovalsAreRepeatedAtGrowingPauses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.hold(1)
	b.look()
	for range 50 {
		b.clock.Step(repeat)
		b.look()
	}
	b.Expect(b.requests()).To(And(BeNumerically(">=", 5), BeNumerically("<=", 12)), "in 50 intervals")
}

func TestReportsSlowDownIfSomebodyRemovesThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.object.Invalid = errors.New("wrong")
	sentence := b.object.Request.Problem(b.object.Invalid)
	b.lookFresh()
	for times := range 5 {
		b.Expect(b.requests()).To(Equal(times + 1))
		b.explain(sentence)
		b.lookFresh()
		b.explain("")
		again := b.lookFresh()
		b.Expect(b.requests()).To(Equal(times+1), "not as soon as it was taken out")
		b.Expect(again).To(BeNumerically(">=", min(repeat<<times, time.Hour)-3*coalesce))
		b.clock.Step(again)
		b.look()
	}
	b.explain(sentence)
	b.lookFresh()
	b.clock.Step(3 * time.Hour)
	b.look()
	before := b.requests()
	b.explain("")
	b.lookFresh()
	b.Expect(b.requests()).To(Equal(before+1), "the earlier ones were long ago")
}
