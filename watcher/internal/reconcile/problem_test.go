package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

// reports returns how often the writer was asked to bring the status in line.
func (b *bench) reports() uint64 {
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

func TestReportsSlowDownBesideSomebodyWhoTakesThemOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.object.Invalid = errors.New("wrong")
	sentence := b.object.Request.Problem(b.object.Invalid)
	b.lookFresh()
	for times := range uint64(5) {
		if n := b.reports(); n != times+1 {
			t.Fatalf("reported %d times, want %d", n, times+1)
		}
		b.explain(sentence)
		b.lookFresh()
		b.explain("")
		again := b.lookFresh()
		if n := b.reports(); n != times+1 {
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
	before := b.reports()
	b.explain("")
	b.lookFresh()
	if n := b.reports(); n != before+1 {
		t.Errorf("reported %d times, want %d: that was long ago", n, before+1)
	}
}
