package reconcile_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

func TestTheFirstEditIsPublishedAtOnceAndABurstIsGathered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com/1", "k")
	if again := b.look(); again != 0 || b.published() != 1 {
		t.Fatalf("published %d, waits %s", b.published(), again)
	}
	b.clock.Step(coalesce / 5)
	b.ask("https://example.com/2", "k")
	if again := b.look(); again != coalesce*4/5 || b.published() != 1 {
		t.Fatalf("published %d, waits %s", b.published(), again)
	}
	b.ask("https://example.com/3", "k")
	b.clock.Step(coalesce * 4 / 5)
	if again := b.look(); again != 0 || b.published() != 2 {
		t.Fatalf("published %d, waits %s", b.published(), again)
	}
}

func TestTheBrokersClockOnlyStamps(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com/1", "k")
	b.look()
	if at := b.index.Object(cm)["k"].At; !at.Equal(b.stamps.Now()) {
		t.Fatalf("published at %s, want %s", at, b.stamps.Now())
	}
	b.stamps.Step(-time.Hour)
	b.ask("https://example.com/2", "k")
	if again := b.lookFresh(); again != 0 || b.published() != 2 {
		t.Fatalf("published %d, waits %s", b.published(), again)
	}
}

func TestAFailedPublishIsNoPartOfABurst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	b.broker.Stop()
	for range 3 {
		if again, err := b.Reconcile(t.Context(), cm); err == nil || again != 0 {
			t.Fatalf("waits %s, error %v", again, err)
		}
	}
}

func TestAnotherWatcherWasFaster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := func(url string, last uint64) {
		t.Helper()
		w := &v1.Want{Namespace: cm.Namespace, Name: cm.Name, Key: "k", Uid: "uid", Url: url, Epoch: b.index.Epoch()}
		if _, err := b.client.PublishWant(t.Context(), w, last); err != nil {
			t.Fatal(err)
		}
	}
	b.ask("https://example.com", "k")
	other("https://example.com", 0)
	if b.look(); b.published() != 1 {
		t.Fatal("published again what another watcher had published")
	}
	other("https://example.com/other", 1)
	b.ask("https://example.com/new", "k")
	b.clock.Step(coalesce)
	if _, err := b.Reconcile(t.Context(), cm); !errors.Is(err, pipeline.ErrSuperseded) {
		t.Fatalf("got %v", err)
	}
	if b.look(); b.published() != 3 || b.cause("k") != v1.Cause_CAUSE_CHANGED {
		t.Errorf("published %d", b.published())
	}
}

func TestAnotherWatcherWasFasterAndItsWantIsResolvedAlready(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	want := &v1.Want{
		Namespace: cm.Namespace, Name: cm.Name, Key: "k", Uid: "uid", Url: "https://example.com",
		Epoch: b.index.Epoch(),
	}
	if _, err := b.client.PublishWant(t.Context(), want, 0); err != nil {
		t.Fatal(err)
	}
	b.answer("k")
	if _, err := b.Reconcile(t.Context(), cm); !errors.Is(err, pipeline.ErrSuperseded) {
		t.Errorf("got %v", err)
	}
	if b.look(); b.published() != 1 || b.log.Len() > 0 {
		t.Errorf("published %d, and the log has %s", b.published(), b.log)
	}

	t.Log("What has happened to the key meanwhile is seen at once.")
	b.lose("k")
	if b.look(); b.published() != 2 || b.cause("k") != v1.Cause_CAUSE_DRIFT {
		t.Errorf("published %d", b.published())
	}
}

func TestASequenceOfALostStreamIsNoResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	s := b.object.Status.Status()
	s.Keys["k"] = status.Entry{
		URL: "https://example.com/other", SHA256: sum,
		Fence: status.Fence{Epoch: b.index.Epoch(), Seq: 1},
	}
	b.object.Status = annotated.EntriesOf(s, nil)
	b.object.Owners["k"] = annotation.Ownership{State: annotation.Ours}
	if b.look(); b.published() != 2 || b.want("k").GetEpoch() != b.index.Epoch()+1 {
		t.Errorf("published %d, the last one in epoch %d of %d", b.published(), b.want("k").GetEpoch(), b.index.Epoch())
	}
}

func TestGarbageAndTombstonesAreOverwritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "garbage", "tombstone")
	if _, err := b.client.JetStream().Publish(t.Context(), key("garbage").Want(), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.PublishTombstone(t.Context(), key("tombstone"), 0); err != nil {
		t.Fatal(err)
	}
	if b.look(); b.published() != 4 {
		t.Errorf("published %d", b.published())
	}
}

func TestOneKeyThatFailsDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "a", "b")
	b.object.Request.Pairs[0].URL = "https://example.com/" + strings.Repeat("x", pipeline.MaxRequestBytes)
	if _, err := b.Reconcile(t.Context(), cm); !errors.Is(err, pipeline.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if b.cause("b") != v1.Cause_CAUSE_NEW {
		t.Error("b is not published")
	}
}

func TestARemovalIsPublishedOnceAndAgainWhenTheWriterDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	b.look()
	b.answer("k")
	b.ask("https://example.com")
	if again := b.lookFresh(); again != repeat || b.requests() != 1 {
		t.Fatalf("%d results, waits %s", b.requests(), again)
	}
	b.clock.Step(time.Minute)
	if again := b.look(); again != repeat-time.Minute || b.requests() != 1 {
		t.Fatalf("%d results, waits %s", b.requests(), again)
	}

	b.clock.Step(repeat)
	if again := b.look(); again != repeat || b.requests() != 2 {
		t.Fatalf("%d results, waits %s", b.requests(), again)
	}

	b.index.Reset(b.index.Epoch()+1, nil) // the streams were created anew
	if b.lookFresh(); b.requests() != 3 {
		t.Fatalf("%d results", b.requests())
	}
	b.object.Status = annotated.Entries{}
	if again := b.lookFresh(); again != 0 || b.requests() != 3 {
		t.Errorf("%d results, waits %s", b.requests(), again)
	}
}

// A broker that is slow, not down, ends no session, so that nobody would read the stream.
func TestAWantWithoutAcknowledgementIsRetractedWhenItsObjectGoes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bench){
		"deleted": func(b *bench) { b.object = nil },
		"unasked": func(b *bench) { b.ask("https://example.com") },
		"occupied": func(b *bench) {
			b.object.Owners["k"] = annotation.Ownership{State: annotation.Foreign, Fingerprint: "x"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.ask("https://example.com", "k")
			b.mute = true
			if _, err := b.Reconcile(t.Context(), cm); err == nil || b.published() != 1 {
				t.Fatalf("published %d, error %v", b.published(), err)
			}
			b.mute = false
			change(b)
			b.clock.Step(coalesce)
			if _, err := b.Reconcile(t.Context(), cm); !errors.Is(err, pipeline.ErrSuperseded) {
				t.Fatalf("error %v", err)
			}
			b.lookFresh()
			if want, _, err := b.client.LastWant(t.Context(), key("k")); err != nil || want != nil {
				t.Errorf("the stream wants %v, %v", want, err)
			}
		})
	}
}

func TestAWantWithoutAcknowledgementIsPublishedAsNewOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	b.mute = true
	if _, err := b.Reconcile(t.Context(), cm); err == nil {
		t.Fatal("acknowledged")
	}
	if _, _, found := b.index.Oldest(); found {
		t.Error("the index names a want of which it is not known whether the stream has it")
	}
	b.mute = false
	if b.lookFresh(); b.published() != 1 || b.cause("k") != v1.Cause_CAUSE_NEW {
		t.Errorf("published %d, cause %s", b.published(), b.cause("k"))
	}
}

func TestAnAnswerIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ask("https://example.com", "k")
	b.look()
	b.answer("k")
	if b.lookFresh(); !b.index.Object(cm)["k"].Resolved {
		t.Fatal("not remembered")
	}
	b.index.Update(key("k"), func(w *wantindex.Want) { w.Drift = "none" })
	if b.lookFresh(); b.index.Object(cm)["k"].Drift != "" {
		t.Error("the next drift would be taken for this one")
	}
	b.object.Status = annotated.Entries{} // replaced by an object without our status
	b.lose("k")
	if b.lookFresh(); b.cause("k") != v1.Cause_CAUSE_DRIFT || !slices.Equal(b.reasons(), []string{"Drifted"}) {
		t.Errorf("%s, emitted %v", b.cause("k"), b.reasons())
	}
}
