package audit_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// stepInterval is the time between two steps.
const stepInterval = interval / 8

// refusing is a namespace whose keys the API server refuses until the cause is fixed.
type refusing struct {
	*bench
	keys   []pipeline.Key
	reason string
	fixed  bool
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

func TestARefusedKeyIsRequestedAtGrowingIntervalsUntilAnEdit(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"BodyTooLarge", "ContentRejected"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			k := b.request("ns", "cm", "k")
			b.entry(k, status.Entry{ErrorURL: url, Error: reason})
			b.fetched()
			want := wantindex.BodyLost
			const minute = time.Minute
			for _, pause := range []time.Duration{minute / 2, 2 * minute, 4 * minute, 8 * minute, 10 * minute, 10 * minute} {
				b.clock.Step(pause - time.Second)
				b.Expect(b.found()).To(BeEmpty(), "before %s", pause)
				b.clock.Step(time.Second)
				b.Expect(b.found()).To(HaveKeyWithValue(k, want), "after %s", pause)
				want = wantindex.BodyLostAgain
				b.publish(k)
				b.fetched()
			}
			b.of(k).EditedAt = b.clock.Now()
			b.clock.Step(30 * time.Second)
			b.Expect(b.found()).To(HaveKeyWithValue(k, wantindex.BodyLost), "soon after an edit")
		})
	}
}
