package audit_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// look is how often an auditor looks at what was refused.
const look = interval / 8

// refusing is a namespace whose keys the writer is refused until its cause is gone.
type refusing struct {
	*bench
	keys   []pipeline.Key
	reason string
	gone   bool
}

func (b *bench) refusing(keys int, reason string) *refusing {
	b.Helper()
	r := &refusing{bench: b, reason: reason}
	for n := range keys {
		k := b.asks("ns", fmt.Sprint("cm-", n), "k")
		if reason != "" {
			b.entry(k, status.Entry{Error: reason})
		}
		r.keys = append(r.keys, k)
	}
	b.fetched()
	return r
}

// pass lets time pass by one look: what is asked for is fetched at once, and held
// if the cause is gone. It returns how many keys were asked for.
func (r *refusing) pass() int {
	r.Helper()
	r.clock.Step(look)
	asked := map[types.NamespacedName]bool{}
	for _, name := range r.look() {
		asked[name] = true
	}
	for name := range asked {
		k := wantindex.KeyOf(name, "k")
		r.Expect(r.want(k).Finding).NotTo(BeEquivalentTo(wantindex.NothingLost), "%s", k)
		r.publish(k)
		if r.gone {
			r.holds(k)
		}
	}
	r.fetched()
	return len(asked)
}

// held returns how many keys are held.
func (r *refusing) held() (n int) {
	for _, k := range r.keys {
		if r.of(k).Status.Of(k.Key).SHA256 == stored {
			n++
		}
	}
	return n
}

// expectHeldInTime removes the cause, and expects that number of held keys within an interval.
func (r *refusing) expectHeldInTime(keys int) {
	r.Helper()
	r.gone = true
	var took time.Duration
	for r.held() < keys && took < time.Hour {
		r.pass()
		took += look
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
		"without a status": {100, "", 20, 4}, // until all wait for 10 min
		"with one":         {100, "WriteFailed", 20, 1},
		"and many":         {4000, "", 3, 1},
	} {
		for phase := range c.phases {
			t.Run(fmt.Sprint(name, " after ", time.Duration(phase)*look), func(t *testing.T) {
				t.Parallel()
				r := newBench(t).refusing(c.keys, c.reason)
				for range 8*c.audits + phase {
					r.pass()
				}
				r.expectHeldInTime(len(r.keys))
			})
		}
	}
}

func TestKeysThatWaitForARetryAreNotRequestedInsteadOfOthers(t *testing.T) {
	t.Parallel()
	r := newBench(t).refusing(3, "")
	for range 8 * 20 { // until all wait for 10 min
		r.pass()
	}
	slices.SortFunc(r.keys, func(x, y pipeline.Key) int { return cmp.Compare(r.want(x).Fence.Seq, r.want(y).Fence.Seq) })
	for _, k := range r.keys[:2] { // their host fails by now
		r.timer(k, time.Hour, func(d *v1.Due) { d.Cause = v1.Cause_CAUSE_RETRY })
	}
	r.expectHeldInTime(1) // the third
}

func TestKeysThatAreRefusedForLongCostLittle(t *testing.T) {
	t.Parallel()
	r := newBench(t).refusing(1000, "")
	for range 8 * 20 {
		r.pass()
	}
	const minutes = 20
	asks := 0
	for range minutes * int(time.Minute/look) {
		asks += r.pass()
	}
	t.Logf("asked for %d times in %d min", asks, minutes)
	// Each every 10 min, and one of 100 each minute.
	r.Expect(asks).To(BeNumerically("<=", minutes*(len(r.keys)/10+1+len(r.keys)/100)))
	r.Expect(r.lost("body_lost")).To(BeEquivalentTo(1000))
	r.Expect(r.lost("refused")).To(BeNumerically(">=", asks))
}

func TestALostKeyIsRequestedInTheNextLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.asks("ns", "cm", "k")
	b.fetched()
	b.clock.Step(20 * time.Second) // young
	b.Expect(b.found()).To(BeEmpty())
	b.clock.Step(look)
	b.Expect(b.look()).To(HaveLen(1))
	b.Expect(b.want(k).Finding).To(Equal(wantindex.BodyLost))
}
