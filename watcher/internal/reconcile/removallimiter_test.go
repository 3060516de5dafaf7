package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/metric/metrictest"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// newCluster returns a bench with many objects, each of which holds a key that
// it asks for.
func newCluster(t *testing.T, objects int) *bench {
	t.Helper()
	b := newBench(t)
	b.object = nil
	for n := range objects {
		b.others = append(b.others, &annotated.Object{
			Meta: informer.Meta{
				NamespacedName: types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("cm-", n)}, UID: types.UID(fmt.Sprint("uid-", n)), Version: 1,
			},
			Written: b.clock.Now(),
			Request: annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: "https://example.com"}}},
			Status:  annotated.EntriesOf(status.Status{Keys: map[string]status.Entry{"k": {URL: "https://example.com", SHA256: sum}}}, nil),
			Owned:   annotation.Ownership{State: annotation.Ours},
		})
	}
	b.lookAt(b.others)
	return b
}

// lookAt reconciles objects after enough time that nothing coalesces.
func (b *bench) lookAt(objects []*annotated.Object) {
	b.t.Helper()
	b.clock.Step(coalesce)
	for _, o := range objects {
		if _, err := b.Reconcile(b.t.Context(), o.NamespacedName); err != nil {
			b.t.Fatal(err)
		}
	}
}

// unask takes the pair out of objects, as one edit of each or a wrong
// --annotation-keys does.
func unask(objects []*annotated.Object) {
	for _, o := range objects {
		o.Request = annotation.Request{}
	}
}

// askAgain takes that back.
func askAgain(objects []*annotated.Object) {
	for _, o := range objects {
		o.Request = annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: "https://example.com"}}}
	}
}

// removed lets the writer make the removals.
func removed(objects []*annotated.Object) {
	for _, o := range objects {
		o.Status = annotated.Entries{}
	}
}

func (b *bench) expectRemovals(published, heldBack int) {
	b.t.Helper()
	g := gomega.NewWithT(b.t)
	g.Expect(metrictest.Value(b.registry, "curlmethat_watcher_removals_published_total")).To(gomega.BeEquivalentTo(published))
	g.Expect(metrictest.Value(b.registry, "curlmethat_watcher_held_back_removals")).To(gomega.BeEquivalentTo(heldBack))
}

func (b *bench) logged(text string) int { return strings.Count(b.log.String(), text) }

func TestNoKeyIsRemovedWhenTooManyAreNoLongerAskedForAtOnce(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	unask(b.others)
	b.lookAt(b.others)
	b.expectRemovals(0, 100)
	b.clock.Step(repeat)
	b.lookAt(b.others)
	b.expectRemovals(0, 100)
	if b.logged("--max-removals=0") != 1 || b.logged(`"removals":100,"keys":100`) != 1 {
		t.Errorf("logged %s", b.log)
	}

	t.Log("The keys are asked for again, and removals go on.")
	askAgain(b.others)
	b.lookAt(b.others)
	b.expectRemovals(0, 0)
	unask(b.others[:5])
	b.clock.Step(time.Second)
	b.lookAt(b.others[:5])
	b.expectRemovals(5, 0)
	if b.logged("removing keys again") != 1 {
		t.Errorf("logged %s", b.log)
	}
}

func TestWhatHoldsNoValueOfOursIsNotHeldBack(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	for _, o := range b.others[:60] {
		o.Status = annotated.EntriesOf(status.Status{Keys: map[string]status.Entry{"k": {Error: "KeyExists", ErrorURL: "https://example.com"}}}, nil)
	}
	unask(b.others[:60])
	b.lookAt(b.others[:60])
	b.expectRemovals(60, 0)

	t.Log("Nor do they count among those of values.")
	unask(b.others[60:])
	b.lookAt(b.others[60:])
	b.expectRemovals(100, 0)
}

func TestTheBrakeLetsGoWhenTheObjectsAreGone(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	unask(b.others[:60])
	b.lookAt(b.others[:60])
	b.expectRemovals(0, 60)
	b.others = b.others[60:] // between two sessions, unseen by this one
	b.clock.Step(time.Second)
	b.lookAt(b.others[:1])
	b.expectRemovals(0, 0)
}

func TestRemovalsOneAfterTheOtherWithinAMinuteAddUp(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	for n := range 60 {
		one := b.others[n : n+1]
		unask(one)
		b.lookAt(one)
		if n < 50 {
			removed(one)
		}
	}
	b.expectRemovals(50, 10)
}

func TestOrdinaryRemovalsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench) (removals int){
		"fifty keys of a small cluster": func(b *bench) int {
			unask(b.others[:50])
			return 50
		},
		"a deleted namespace": func(b *bench) int {
			b.others = b.others[90:]
			return 0
		},
		"suspended objects": func(b *bench) int {
			for _, o := range b.others {
				o.Request.Suspended = true
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCluster(t, 100)
			all := b.others
			removals := change(b)
			b.lookAt(all)
			b.expectRemovals(removals, 0)
		})
	}
}

func TestAFifthOfManyKeysIsRemoved(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 400)
	unask(b.others[:80])
	b.lookAt(b.others[:80])
	b.expectRemovals(80, 0)

	t.Log("What the writer has not yet done is asked for again, and does not count again.")
	b.clock.Step(repeat)
	b.lookAt(b.others[:80])
	b.expectRemovals(160, 0)
}

// answered is newCluster with the wants and fences of the stream that there is.
func answered(t *testing.T, objects int) *bench {
	t.Helper()
	b := newCluster(t, objects)
	for _, o := range b.others {
		o.Status = annotated.EntriesOf(status.Status{Keys: map[string]status.Entry{"k": {
			URL: "https://example.com", SHA256: sum, Fence: b.index.Object(o.NamespacedName)["k"].Fence,
		}}}, nil)
	}
	return b
}

// restarted returns a watcher that knows nothing but objects and stream.
func (b *bench) restarted() *bench {
	b.t.Helper()
	next := newBench(b.t)
	next.object, next.others = nil, b.others
	next.read(b.client, b.index.Epoch())
	return next
}

// read reads the stream as a session does when it begins.
func (b *bench) read(from *pipeline.Client, epoch int64) {
	b.t.Helper()
	wants := map[pipeline.Key]wantindex.Want{}
	err := from.LoadWants(b.t.Context(), func(m pipeline.Message) error {
		_, key, err := pipeline.ParseSubject(m.Subject)
		if err != nil {
			return err
		}
		switch w, err := pipeline.DecodeWant(key, m.Data); {
		case err != nil:
			return err
		case w != nil:
			wants[key] = wantindex.Of(w, epoch, m.Sequence, m.Time)
		case pipeline.IsRemoval(m):
			b.NoteRemoval(key, epoch)
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.index.Reset(epoch, wants)
}

func TestRemovalsThatTheWriterIsRefusedHoldUpNoOthersAfterARestart(t *testing.T) {
	t.Parallel()
	b := answered(t, 400)
	for n := range 4 { // they may not be written; each minute as many as pass
		some := b.others[n*30 : (n+1)*30]
		unask(some)
		b.lookAt(some)
		b.clock.Step(2 * time.Minute)
	}
	b.expectRemovals(120, 0)

	next := b.restarted()
	next.lookAt(next.others[:120])
	next.expectRemovals(120, 0)
	unask(next.others[200:205])
	next.clock.Step(2 * time.Minute)
	next.lookAt(next.others[200:205])
	next.expectRemovals(125, 0)
}

func TestTheBrakeHoldsOverARestart(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*annotation.Request){
		"after they were asked for": func(*annotation.Request) {},
		"after they were suspended": func(r *annotation.Request) { r.Suspended = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := answered(t, 100)
			for _, o := range b.others {
				before(&o.Request)
			}
			b.lookAt(b.others)
			unask(b.others)
			for range 2 {
				b.lookAt(b.others)
				b.expectRemovals(0, 100)
				b = b.restarted()
			}
			b.lookAt(b.others)
			b.expectRemovals(0, 100)
		})
	}
}
