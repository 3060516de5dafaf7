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
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// longName and longKey are valid, and their subject has nearly the maximum length.
func longName(n int) string { return strings.Repeat("a.", 124) + fmt.Sprintf("%05d", n) }
func longKey(n int) string  { return fmt.Sprintf("k%03d", n) + strings.Repeat(".", 249) }

func TestLongNamesDoNotStopTheAuditOfOtherTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var lost []pipeline.Key
	for n := range 600 {
		lost = append(lost, b.request("victim", fmt.Sprint("cm-", n), "k"))
	}
	for o := range 8 {
		for n := range 128 {
			b.request("evil", longName(o), longKey(n))
		}
	}
	lost = append(lost, b.request("victim", "after", "k"))
	b.fetched()
	b.clock.Step(interval)
	found := b.found()
	for _, k := range lost {
		b.Expect(found[k]).To(Equal(wantindex.BodyLost), "%s, of %d", k, len(found))
	}
}

func TestAStepThatFailsHalfwayCountsOnlyItsRequests(t *testing.T) {
	t.Parallel()
	const keys = 3000
	b := newBench(t)
	for n := range keys {
		b.request("ns", fmt.Sprint("cm-", n), "k")
	}
	b.fetched()
	b.clock.Step(interval / 5) // within the grace period
	b.audit()
	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int32
	sub, err := b.client.JetStream().Conn().Subscribe("$JS.API.DIRECT.GET."+pipeline.Requests, func(*nats.Msg) {
		if requests.Add(1) == 2 {
			cancel()
		}
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.clock.Step(interval / 5)
	b.Expect(b.Step(ctx, func(types.NamespacedName) {})).NotTo(Succeed())
	b.Expect(sub.Unsubscribe()).To(Succeed())
	b.clock.Step(stepInterval)
	b.runStep()
	b.Expect(b.lost("body_lost")).To(BeEquivalentTo(keys))
	b.Expect(b.lost("body_lost_again")).To(BeZero())
}

func TestFailingKeysWithATimerAreNotReadAgain(t *testing.T) {
	t.Parallel()
	const keys = 1000
	b := newBench(t)
	for n := range keys {
		k := b.request("ns", fmt.Sprint("cm-", n), "k")
		b.entry(k, status.Entry{ErrorURL: url, Error: "BadStatus", GaveUp: true})
		b.timer(k, time.Hour, func(d *v1.Due) {
			d.Cause, d.Reported = v1.Cause_CAUSE_RECHECK, v1.FailureClass_FAILURE_CLASS_BAD_STATUS
		})
	}
	b.fetched()
	b.clock.Step(interval)
	b.audit()
	before := b.client.JetStream().Conn().Stats().InMsgs
	for range 8 {
		b.clock.Step(stepInterval)
		b.Expect(b.runStep()).To(BeEmpty())
	}
	b.Expect(b.client.JetStream().Conn().Stats().InMsgs-before).To(BeNumerically("<=", 8*5), "messages in 8 steps")
}

func TestForgedReasonsCountAsOneRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := &refusing{bench: b}
	for n := range 200 {
		k := b.request("ns", fmt.Sprint("cm-", n), "k")
		b.entry(k, status.Entry{ErrorURL: url, Error: fmt.Sprint("x", n)})
		r.keys = append(r.keys, k)
	}
	b.fetched()
	for range 8 * 20 {
		r.advance()
	}
	requests := 0
	for range 8 * 5 {
		requests += r.advance()
	}
	// One per key in 10 min, and one every half interval.
	b.Expect(requests).To(BeNumerically("<=", len(r.keys)+10), "in 10 min")
}

func TestTheAuditDoesNotListQueuedResultsOfOtherTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lost, waiting := b.request("ns", "cm", "lost"), b.request("ns", "cm", "waiting")
	b.fetched()
	b.result(waiting)
	const queued = 3000
	js := b.client.JetStream()
	for n := range queued {
		k := pipeline.Key{Namespace: "evil", Name: longName(n), Key: longKey(0)}
		b.Expect(js.Publish(t.Context(), k.ContentSubject(), []byte("x"))).Error().NotTo(HaveOccurred())
	}
	b.clock.Step(interval)
	before := js.Conn().Stats().InBytes
	b.Expect(b.found()).To(Equal(map[pipeline.Key]wantindex.Finding{lost: wantindex.BodyLost}))
	b.Expect(js.Conn().Stats().InBytes - before).To(BeNumerically("<=", 100_000))
}

func TestANewSessionChecksAllSuspectsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.request("ns", "cm", "k")
	b.entry(k, status.Entry{ErrorURL: url, Error: "Timeout"})
	b.fetched()
	b.timer(k, time.Hour, func(d *v1.Due) { d.Cause = v1.Cause_CAUSE_RETRY })
	b.clock.Step(interval)
	b.Expect(b.found()).To(BeEmpty())
	b.purge(pipeline.KindTimer.All())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan types.NamespacedName, 1)
	go b.Run(ctx, func(name types.NamespacedName) { asked <- name })
	for !b.clock.HasWaiters() {
		runtime.Gosched()
	}
	b.clock.Step(stepInterval)
	b.Expect(<-asked).To(Equal(wantindex.ObjectOf(k)))
}

// purge removes all messages of a subject.
func (b *bench) purge(subject string) {
	b.Helper()
	stream, err := b.client.JetStream().Stream(b.Context(), pipeline.Requests)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(stream.Purge(b.Context(), jetstream.WithPurgeSubject(subject))).To(Succeed())
}
