package audit_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

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
	r.check(r.Look(r.Context(), func(name types.NamespacedName) { asked[name] = true }))
	for name := range asked {
		k := pipeline.Key{Namespace: name.Namespace, Name: name.Name, Key: "k"}
		if r.want(k).Finding == wantindex.NothingLost {
			r.Fatalf("%s is not asked for", k)
		}
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
		if r.objects[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}].Status.Of(k.Key).SHA256 == stored {
			n++
		}
	}
	return n
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
				r.gone = true
				var took time.Duration
				for r.held() < len(r.keys) && took < time.Hour {
					r.pass()
					took += look
				}
				t.Logf("all are held after %s", took)
				if took > interval {
					t.Errorf("all are held after %s", took)
				}
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
	r.gone = true
	var took time.Duration
	for r.held() == 0 && took < time.Hour {
		r.pass()
		took += look
	}
	if took > interval {
		t.Errorf("the third key is held after %s", took)
	}
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
	if most := minutes * (len(r.keys)/10 + 1 + len(r.keys)/100); asks > most {
		t.Errorf("asked for %d in %d min, at most %d are allowed", asks, minutes, most)
	}
	lost, again := r.metric("lost_keys_total", "body_lost"), r.metric("lost_keys_total", "refused")
	if lost != 1000 || again < float64(asks) {
		t.Errorf("%v were lost, and asked for %v times again", lost, again)
	}
}

func TestALostKeyIsRequestedInTheNextLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	k := b.asks("ns", "cm", "k")
	b.fetched()
	b.clock.Step(20 * time.Second) // young
	if len(b.found()) > 0 {
		t.Fatal("asked for what is young")
	}
	b.clock.Step(look)
	var names []types.NamespacedName
	b.check(b.Look(t.Context(), func(name types.NamespacedName) { names = append(names, name) }))
	if len(names) != 1 || b.want(k).Finding != wantindex.BodyLost {
		t.Errorf("asked for %v", names)
	}
}
