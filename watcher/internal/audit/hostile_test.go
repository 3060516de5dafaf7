package audit_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// longName and longKey are legal, and nearly as long as a subject can be.
func longName(n int) string { return strings.Repeat("a.", 124) + fmt.Sprintf("%05d", n) }
func longKey(n int) string  { return fmt.Sprintf("k%03d", n) + strings.Repeat(".", 249) }

func TestLongNamesDoNotEndTheAuditOfOtherTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var lost []pipeline.Key
	for n := range 600 {
		lost = append(lost, b.asks("victim", fmt.Sprint("cm-", n), "k"))
	}
	for o := range 8 {
		for n := range 128 {
			b.asks("evil", longName(o), longKey(n))
		}
	}
	lost = append(lost, b.asks("victim", "after", "k"))
	b.fetched()
	b.clock.Step(interval)
	found := b.found()
	for _, k := range lost {
		if found[k] != wantindex.BodyLost {
			t.Fatalf("found %d of %d lost keys, and not %s", len(found), len(lost)+8*128, k)
		}
	}
}

func TestALookThatFailsHalfWayCountsOnlyItsRequests(t *testing.T) {
	t.Parallel()
	const keys = 3000
	b := newBench(t)
	for n := range keys {
		b.asks("ns", fmt.Sprint("cm-", n), "k")
	}
	b.fetched()
	b.clock.Step(interval / 5) // young
	b.audit()
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int32
	sub, err := b.client.JetStream().Conn().Subscribe("$JS.API.DIRECT.GET."+pipeline.Requests, func(*nats.Msg) {
		if requests.Add(1) == 2 {
			cancel()
		}
	})
	b.check(err)
	b.clock.Step(interval / 5)
	if err := b.Look(ctx, func(types.NamespacedName) {}); err == nil {
		t.Fatal("the look did not fail")
	}
	b.check(sub.Unsubscribe())
	b.clock.Step(look)
	b.check(b.Look(t.Context(), func(types.NamespacedName) {}))
	if n := b.metric("lost_keys_total", "body_lost"); n != keys {
		t.Errorf("asked for %v of %d lost keys", n, keys)
	}
	if n := b.metric("lost_keys_total", "refused"); n != 0 {
		t.Errorf("asked for %v twice", n)
	}
}

// A body may be refused without a word in the status: for a missing Role, or a budget.
func TestRefusedBodiesOfHeldKeysCostNoMoreThanOthers(t *testing.T) {
	t.Parallel()
	const keys, hours = 100, 1
	asks := map[bool]int{}
	for _, held := range []bool{false, true} {
		b := newBench(t)
		var all []pipeline.Key
		for n := range keys {
			k := b.asks("ns", fmt.Sprint("cm-", n), "k")
			if held {
				b.holds(k)
			}
			all = append(all, k)
		}
		b.fetched()
		for _, k := range all {
			b.timer(k, 24*time.Hour, cached(other))
		}
		for range hours * int(time.Hour/look) {
			b.clock.Step(look)
			b.check(b.Look(t.Context(), func(name types.NamespacedName) {
				k := wantindex.KeyOf(name, "k")
				if b.want(k).Finding != wantindex.NothingLost {
					asks[held]++
					b.publish(k)
				}
			}))
			b.fetched()
			for _, k := range all {
				b.timer(k, 24*time.Hour, cached(other))
			}
		}
	}
	each := map[bool]float64{false: float64(asks[false]) / keys / hours, true: float64(asks[true]) / keys / hours}
	t.Logf("asks for each refused key in an hour: %.1f not held, %.1f held", each[false], each[true])
	if each[true] > each[false]+1 || each[false] > 10 {
		t.Errorf("refused keys are asked for %.1f times an hour, held ones %.1f times", each[false], each[true])
	}
}

func TestFailingKeysWithAPendingTimerAreNotReadAgain(t *testing.T) {
	t.Parallel()
	const keys = 1000
	b := newBench(t)
	for n := range keys {
		k := b.asks("ns", fmt.Sprint("cm-", n), "k")
		b.entry(k, status.Entry{Error: "BadStatus", GaveUp: true})
	}
	b.fetched()
	for n := range keys {
		b.timer(pipeline.Key{Namespace: "ns", Name: fmt.Sprint("cm-", n), Key: "k"}, time.Hour, func(d *v1.Due) {
			d.Cause, d.Reported = v1.Cause_CAUSE_RECHECK, v1.FailureClass_FAILURE_CLASS_BAD_STATUS
		})
	}
	b.clock.Step(interval)
	b.audit()
	before := b.client.JetStream().Conn().Stats().InMsgs
	for range 8 {
		b.clock.Step(look)
		b.check(b.Look(t.Context(), func(name types.NamespacedName) { t.Errorf("%s is asked for", name) }))
	}
	if n := b.client.JetStream().Conn().Stats().InMsgs - before; n > 8*5 {
		t.Errorf("read %d messages in 8 looks at %d failing keys", n, keys)
	}
}

func TestForgedReasonsAreOneRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := &refusing{bench: b}
	for n := range 200 {
		k := b.asks("ns", fmt.Sprint("cm-", n), "k")
		b.entry(k, status.Entry{Error: fmt.Sprint("x", n)})
		r.keys = append(r.keys, k)
	}
	b.fetched()
	for range 8 * 20 {
		r.pass()
	}
	asks := 0
	for range 8 * 5 {
		asks += r.pass()
	}
	if most := len(r.keys) + 10; asks > most { // each in 10 min, and one in half an interval
		t.Errorf("asked for %d in 10 min, at most %d are allowed", asks, most)
	}
}

func TestQueuedResultsOfOthersAreNotListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lost, waiting := b.asks("ns", "cm", "lost"), b.asks("ns", "cm", "waiting")
	b.fetched()
	b.result(waiting)
	const queued = 3000
	conn := b.client.JetStream().Conn()
	for n := range queued {
		b.check(conn.Publish(pipeline.Key{Namespace: "evil", Name: longName(n), Key: longKey(0)}.Content(), []byte("x")))
	}
	for msgs := uint64(0); msgs <= queued; {
		stream, err := b.client.JetStream().Stream(t.Context(), pipeline.Results)
		b.check(err)
		msgs = stream.CachedInfo().State.Msgs
	}
	b.clock.Step(interval)
	before := conn.Stats().InBytes
	if found := b.found(); found[lost] != wantindex.BodyLost || len(found) != 1 {
		t.Errorf("found %v", found)
	}
	if n := conn.Stats().InBytes - before; n > 100_000 {
		t.Errorf("read %d bytes", n)
	}
}

func TestAnEqualBodyAfterCurlNowIsNotFetchedTwice(t *testing.T) {
	t.Parallel()
	now := func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }
	for name, c := range map[string]struct {
		body string
		want wantindex.Finding
	}{
		"an equal body":               {stored, wantindex.NothingLost},
		"another that did not land":   {other, wantindex.BodyLost},
		"a fetch that left no digest": {"", wantindex.BodyLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			k := b.asks("ns", "cm", "k")
			b.holds(k)
			b.publish(k, now)
			b.fetched()
			b.timer(k, time.Hour, cached(c.body))
			b.clock.Step(interval)
			if got := b.found()[k]; got != c.want {
				t.Errorf("found %s, want %s", got, c.want)
			}
		})
	}
}

func TestANewSessionTrustsNoEvidenceOfTheOneBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.asks("ns", "cm", "k")
	b.entry(k, status.Entry{Error: "Timeout"})
	b.fetched()
	b.timer(k, time.Hour, func(d *v1.Due) { d.Cause = v1.Cause_CAUSE_RETRY })
	b.clock.Step(interval)
	if found := b.found(); len(found) > 0 {
		t.Fatalf("found %v", found)
	}
	stream, err := b.client.JetStream().Stream(t.Context(), pipeline.Requests)
	b.check(err)
	b.check(stream.Purge(t.Context(), jetstream.WithPurgeSubject(pipeline.KindTimer.All())))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan types.NamespacedName, 1)
	go b.Run(ctx, func(name types.NamespacedName) { asked <- name })
	for !b.clock.HasWaiters() {
		runtime.Gosched()
	}
	b.clock.Step(look)
	if got := <-asked; got != wantindex.ObjectOf(k) {
		t.Errorf("asked for %s", got)
	}
}

func TestAFailingKeyWithATimerIsNotRequestedAfterARecentRefresh(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.clock.SetTime(time.Now().Add(-interval))
	k := b.asks("ns", "cm", "k")
	b.entry(k, status.Entry{Error: "BadStatus", GaveUp: true})
	b.fetched()
	b.due(k, v1.Cause_CAUSE_REFRESH)
	b.fetched()
	stream, err := b.client.JetStream().Stream(t.Context(), pipeline.Requests)
	b.check(err)
	for n, at := range []time.Duration{-interval / 2, interval / 8} {
		b.check(stream.Purge(t.Context(), jetstream.WithPurgeSubject(k.Timer()))) // it may have fired, but will not
		b.fetched()
		b.clock.SetTime(time.Now().Add(at))
		b.timer(k, time.Second, func(d *v1.Due) { d.Reported = v1.FailureClass_FAILURE_CLASS_BAD_STATUS })
		if got := b.found()[k]; got != wantindex.NothingLost {
			t.Errorf("audit %d found %s", n, got)
		}
	}
}
