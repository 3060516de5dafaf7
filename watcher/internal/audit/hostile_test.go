package audit_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
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

// A missing Role or a budget leaves no failure in the status.
func TestRefusalsOfHeldKeysCostNoMoreThanOfOthers(t *testing.T) {
	t.Parallel()
	const keys = 100
	requests := map[bool]float64{} // per key and hour
	for _, held := range []bool{false, true} {
		b := newBench(t)
		var all []pipeline.Key
		for n := range keys {
			k := b.request("ns", fmt.Sprint("cm-", n), "k")
			if held {
				b.hold(k)
			}
			all = append(all, k)
		}
		refuse := func() {
			b.fetched()
			for _, k := range all {
				b.timer(k, 24*time.Hour, cached(other))
			}
		}
		refuse()
		for range int(time.Hour / stepInterval) {
			b.clock.Step(stepInterval)
			for _, name := range b.runStep() {
				if k := wantindex.KeyOf(name, "k"); b.want(k).Finding != wantindex.NothingLost {
					requests[held] += 1. / keys
					b.publish(k)
				}
			}
			refuse()
		}
	}
	t.Logf("requests per refused key and hour: %.1f not held, %.1f held", requests[false], requests[true])
	g := NewWithT(t)
	g.Expect(requests[true]).To(BeNumerically("<=", requests[false]+1))
	g.Expect(requests[false]).To(BeNumerically("<=", 10))
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
		b.Expect(js.Publish(t.Context(), k.Content(), []byte("x"))).Error().NotTo(HaveOccurred())
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

// stepInterval is the time between two steps.
const stepInterval = interval / 8

// refusing is a namespace whose keys the API server refuses until the cause is fixed.
type refusing struct {
	*bench
	keys   []pipeline.Key
	reason string
	fixed  bool
}

func (b *bench) refusing(keys int, reason string) *refusing {
	b.Helper()
	r := &refusing{bench: b, reason: reason}
	for n := range keys {
		k := b.request("ns", fmt.Sprint("cm-", n), "k")
		if reason != "" {
			b.entry(k, status.Entry{ErrorURL: url, Error: reason})
		}
		r.keys = append(r.keys, k)
	}
	b.fetched()
	return r
}

// advance runs the next step. Requested keys are fetched at once, and held if the cause is fixed. It
// returns their number.
func (r *refusing) advance() int {
	r.Helper()
	r.clock.Step(stepInterval)
	asked := map[types.NamespacedName]bool{}
	for _, name := range r.runStep() {
		asked[name] = true
	}
	for name := range asked {
		k := wantindex.KeyOf(name, "k")
		r.Expect(r.want(k).Finding).NotTo(BeEquivalentTo(wantindex.NothingLost), "%s", k)
		r.publish(k)
		if r.fixed {
			r.hold(k)
		}
	}
	r.fetched()
	return len(asked)
}

// countHeld returns the number of held keys.
func (r *refusing) countHeld() (n int) {
	for _, k := range r.keys {
		if r.of(k).Status.Of(k.Key).SHA256 == stored {
			n++
		}
	}
	return n
}

// expectHeldInTime fixes the cause and expects a number of held keys within an interval.
func (r *refusing) expectHeldInTime(keys int) {
	r.Helper()
	r.fixed = true
	var took time.Duration
	for r.countHeld() < keys && took < time.Hour {
		r.advance()
		took += stepInterval
	}
	r.Expect(took).To(BeNumerically("<=", interval))
}

func TestRefusedKeysAreRequestedWithinAnIntervalOfTheFix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys   int
		reason string
		audits int
		phases int
	}{
		"without a status": {100, "", 20, 4}, // until all pauses are 10 min
		"with one":         {100, "WriteFailed", 20, 1},
		"and many":         {4000, "", 3, 1},
	} {
		for phase := range c.phases {
			t.Run(fmt.Sprint(name, " after ", time.Duration(phase)*stepInterval), func(t *testing.T) {
				t.Parallel()
				r := newBench(t).refusing(c.keys, c.reason)
				for range 8*c.audits + phase {
					r.advance()
				}
				r.expectHeldInTime(len(r.keys))
			})
		}
	}
}

func TestAKeyWhoseStatusIsRemovedIsNotRequestedEachMinute(t *testing.T) {
	t.Parallel()
	r := newBench(t).refusing(1, "")
	r.of(r.keys[0]).Owners["k"] = annotation.Ownership{State: annotation.Ours}
	requests := 0
	for range 8 * 60 { // intervals
		requests += r.advance()
	}
	r.Expect(requests).To(BeNumerically("<=", 4+60/5))
}

func TestAKeyIsRefusedUntilItLands(t *testing.T) {
	t.Parallel()
	r := newBench(t).refusing(1, "")
	refused := func() bool {
		_, refused := r.NotLanding(r.keys[0])
		return refused
	}
	for !refused() {
		r.advance()
	}
	r.fixed = true
	for r.countHeld() == 0 {
		r.advance()
	}
	r.advance()
	r.Expect(refused()).To(BeFalse())
}

func TestAKeyThatWaitsForARetryIsNotRequestedInsteadOfAnother(t *testing.T) {
	t.Parallel()
	r := newBench(t).refusing(3, "")
	for range 8 * 20 { // until all pauses are 10 min
		r.advance()
	}
	slices.SortFunc(r.keys, func(x, y pipeline.Key) int { return cmp.Compare(r.want(x).Fence.Seq, r.want(y).Fence.Seq) })
	for _, k := range r.keys[:2] { // their host fails now
		r.timer(k, time.Hour, func(d *v1.Due) { d.Cause = v1.Cause_CAUSE_RETRY })
	}
	r.expectHeldInTime(1) // the third
}

func TestLongRefusedKeysCostLittle(t *testing.T) {
	t.Parallel()
	r := newBench(t).refusing(1000, "")
	for range 8 * 20 {
		r.advance()
	}
	const minutes = 20
	requests := 0
	for range minutes * int(time.Minute/stepInterval) {
		requests += r.advance()
	}
	t.Logf("%d requests in %d min", requests, minutes)
	// One per key in 10 min, and one per 100 keys and minute.
	r.Expect(requests).To(BeNumerically("<=", minutes*(len(r.keys)/10+1+len(r.keys)/100)))
	r.Expect(r.lost("body_lost")).To(BeEquivalentTo(1000))
	r.Expect(r.lost("body_lost_again")).To(BeNumerically(">=", requests))
}

func TestALostKeyIsRequestedInTheNextStep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.request("ns", "cm", "k")
	b.fetched()
	b.clock.Step(20 * time.Second) // within the grace period
	b.Expect(b.found()).To(BeEmpty())
	b.clock.Step(stepInterval)
	b.Expect(b.runStep()).To(HaveLen(1))
	b.Expect(b.want(k).Finding).To(Equal(wantindex.BodyLost))
}
