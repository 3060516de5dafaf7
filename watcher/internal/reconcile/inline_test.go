package reconcile_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

// requests returns how often the writer was asked to bring an object in line.
func (b *bench) requests() uint64 {
	b.t.Helper()
	stream, err := b.client.JetStream().Stream(b.t.Context(), pipeline.Results)
	if err != nil {
		b.t.Fatal(err)
	}
	info, err := stream.Info(b.t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		b.t.Fatal(err)
	}
	return info.State.LastSeq
}

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
	if b.requests() != 1 || b.published() != 0 {
		t.Errorf("asked the writer %d times, published %d", b.requests(), b.published())
	}
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
	if n := b.requests(); n < 5 || n > 12 {
		t.Errorf("asked the writer %d times in 50 intervals", n)
	}
}

func TestReportsSlowDownIfSomebodyRemovesThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.object.Invalid = errors.New("wrong")
	sentence := b.object.Request.Problem(b.object.Invalid)
	b.lookFresh()
	for times := range uint64(5) {
		if n := b.requests(); n != times+1 {
			t.Fatalf("reported %d times, want %d", n, times+1)
		}
		b.explain(sentence)
		b.lookFresh()
		b.explain("")
		again := b.lookFresh()
		if n := b.requests(); n != times+1 {
			t.Fatalf("reported %d times as soon as it was taken out", n)
		}
		if least := min(repeat<<times, time.Hour) - 3*coalesce; again < least {
			t.Fatalf("waits %s, want %s at least", again, least)
		}
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
	if n := b.requests(); n != before+1 {
		t.Errorf("reported %d times, want %d: that was long ago", n, before+1)
	}
}
