package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process/metric/metrictest"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// newCluster returns a bench with many objects in one namespace, each of which holds
// a key that it asks for.
func newCluster(t *testing.T, objects int) *bench {
	t.Helper()
	return newClusterOf(t, objects, 1)
}

// newClusterOf is newCluster with the objects spread over namespaces.
func newClusterOf(t *testing.T, objects, namespaces int) *bench {
	t.Helper()
	b := newBench(t)
	b.object = nil
	for n := range objects {
		name := types.NamespacedName{Namespace: fmt.Sprint("ns-", n%namespaces), Name: fmt.Sprint("cm-", n)}
		b.others = append(b.others, &annotated.Object{
			Meta:    informer.Meta{NamespacedName: name, UID: types.UID(fmt.Sprint("uid-", n)), Version: 1},
			Written: b.clock.Now(),
			Request: annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: "https://example.com"}}},
			Status:  entries(map[string]status.Entry{"k": {URL: "https://example.com", SHA256: sum}}),
			Owned:   annotation.Ownership{State: annotation.Ours},
		})
	}
	b.lookAt(b.others)
	return b
}

func entries(keys map[string]status.Entry) annotated.Entries {
	return annotated.EntriesOf(status.Status{Keys: keys}, nil)
}

// lookAt reconciles objects after enough time that nothing coalesces, and removals are counted.
func (b *bench) lookAt(objects []*annotated.Object) {
	b.t.Helper()
	b.clock.Step(time.Second)
	for _, o := range objects {
		b.Expect(b.Reconcile(b.t.Context(), o.NamespacedName)).Error().NotTo(HaveOccurred())
	}
}

// unask takes the pair out of objects, as one edit of each or a wrong
// --annotation-keys does.
func (b *bench) unask(objects ...*annotated.Object) {
	for _, o := range objects {
		o.Request, o.SeenAt = annotation.Request{}, b.clock.Now()
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

// expectRemovals expects how many keys the writer was asked to remove, and how many removals are held back.
func (b *bench) expectRemovals(published, heldBack int) {
	b.t.Helper()
	b.Expect(metrictest.Value(b.registry, "curlmethat_watcher_removals_published_total")).
		To(BeEquivalentTo(published))
	b.Expect(metrictest.Value(b.registry, "curlmethat_watcher_held_back_removals")).To(BeEquivalentTo(heldBack))
}

// expectLogged expects that the log has a text once.
func (b *bench) expectLogged(text string) {
	b.t.Helper()
	b.Expect(strings.Count(string(b.log.Contents()), text)).To(Equal(1), text)
}

func TestANamespaceThatRemovesTooManyKeysAtOnceKeepsThem(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	b.unask(b.others...)
	b.lookAt(b.others)
	b.expectRemovals(0, 100)
	b.clock.Step(repeat)
	b.lookAt(b.others)
	b.expectRemovals(0, 100)
	b.expectLogged("--max-removals=0")
	b.expectLogged(`"namespace":"ns-0","removals":100,"keys":100`)
	b.Expect(b.emitted).To(And(HaveLen(len(b.others)), HaveEach(And(HaveField("Reason", "RemovalHeldBack"),
		HaveField("Namespace", "ns-0"), HaveField("Note", ContainSubstring("namespace ns-0"))))))

	t.Log("Enough of the keys are asked for again, and the rest goes.")
	askAgain(b.others[20:])
	b.clock.Step(time.Second)
	b.lookAt(b.others)
	b.expectRemovals(20, 0)
	b.expectLogged("no removals are held back any more")
}

// Whoever may edit one namespace holds back no removals of another one, be it by what
// they write into a status or by keys of their own.
func TestANamespaceHoldsBackNoneOfAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner             annotation.State
		removed, heldBack int
	}{
		"forged":          {annotation.None, 256, 0},
		"somebody else's": {annotation.Foreign, 256, 0},
		"its own":         {annotation.Ours, 0, 256},
		"not on record":   {annotation.Unknown, 0, 256},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCluster(t, 250)
			forged := map[string]status.Entry{}
			for n := range 256 {
				forged[fmt.Sprint("k", n)] = status.Entry{SHA256: sum}
			}
			b.others = append(b.others, &annotated.Object{
				Meta: informer.Meta{
					NamespacedName: types.NamespacedName{Namespace: "evil", Name: "cm"}, UID: "uid-evil", Version: 1,
				},
				Written: b.clock.Now(), Status: entries(forged), Owned: annotation.Ownership{State: c.owner},
			})
			b.lookAt(b.others[250:])
			b.unask(b.others[:5]...)
			b.lookAt(b.others[:5])
			b.expectRemovals(c.removed+5, c.heldBack)

			t.Log("What is held back ends with its object.")
			b.others = b.others[:250]
			b.unask(b.others[5:10]...)
			b.clock.Step(time.Second)
			b.lookAt(b.others[5:10])
			b.expectRemovals(c.removed+10, 0)
		})
	}
}

// A wrong --annotation-keys takes few keys of each namespace, but in all of them.
func TestTooManyNamespacesThatRemoveKeysKeepThemAll(t *testing.T) {
	t.Parallel()
	b := newClusterOf(t, 100, 20)
	b.unask(b.others...)
	b.lookAt(b.others)
	b.expectRemovals(0, 100)
	b.clock.Step(repeat)
	b.lookAt(b.others)
	b.expectRemovals(0, 100)
	b.expectLogged("check --annotation-keys")
	b.expectLogged(`"namespaces":20,"removals":100,"keys":100`)
	b.Expect(b.emitted).To(BeEmpty())

	t.Log("The keys are asked for again, and removals go on.")
	askAgain(b.others)
	b.unask(b.others[:5]...)
	b.clock.Step(time.Second)
	b.lookAt(b.others)
	b.expectRemovals(5, 0)
}

func TestFewNamespacesHoldBackNoOthers(t *testing.T) {
	t.Parallel()
	b := newClusterOf(t, 400, 20)
	for n, o := range b.others { // all keys of four namespaces, which are a fifth of them
		if n%20 < 4 {
			b.unask(o)
		}
	}
	b.lookAt(b.others)
	b.expectRemovals(80, 0)
}

func TestKeysOfOtherOwnersAreNotHeldBack(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	for _, o := range b.others[:60] {
		o.Owned = annotation.Ownership{State: annotation.Foreign}
		o.Status = entries(map[string]status.Entry{"k": {Error: "KeyExists", ErrorURL: "https://example.com"}})
	}
	b.unask(b.others[:60]...)
	b.lookAt(b.others[:60])
	b.expectRemovals(60, 0)

	t.Log("Nor do they count among those of values.")
	b.unask(b.others[60:]...)
	b.lookAt(b.others[60:])
	b.expectRemovals(100, 0)
}

func TestRemovalsOneAfterTheOtherWithinAMinuteAddUp(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	for n := range 60 {
		one := b.others[n : n+1]
		b.unask(one...)
		b.lookAt(one)
		if n < 50 {
			removed(one)
		}
	}
	b.clock.Step(time.Second)
	b.lookAt(b.others[59:60])
	b.expectRemovals(50, 10)

	t.Log("They go when those before are a minute old.")
	b.clock.Step(time.Minute + time.Second)
	b.lookAt(b.others[50:60])
	b.expectRemovals(60, 0)
}

func TestRemovalsWaitUntilTheyWereCounted(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	b.unask(b.others[0])
	b.lookAt(b.others[:1])
	b.clock.Step(coalesce)
	b.unask(b.others[1:]...)
	for _, o := range b.others[1:] {
		b.Expect(b.Reconcile(t.Context(), o.NamespacedName)).To(Equal(time.Second), "when to look again")
	}
	b.expectRemovals(1, 0)
	b.lookAt(b.others[1:])
	b.expectRemovals(1, 99)
}

func TestOrdinaryRemovalsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench) (removals int){
		"fifty keys of a small cluster": func(b *bench) int {
			b.unask(b.others[:50]...)
			return 50
		},
		"a deleted namespace": func(b *bench) int {
			b.others = b.others[90:]
			return 0
		},
		"suspended objects": func(b *bench) int {
			b.unask(b.others...)
			for _, o := range b.others {
				o.Request.Suspended = true
			}
			return 0
		},
		"invalid objects": func(b *bench) int {
			b.unask(b.others...)
			for _, o := range b.others {
				o.Invalid = errors.New("bad")
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
	b.unask(b.others[:80]...)
	b.lookAt(b.others[:80])
	b.expectRemovals(80, 0)

	t.Log("What the writer has not yet done is asked for again, and does not count again.")
	b.clock.Step(repeat)
	b.lookAt(b.others[:80])
	b.expectRemovals(160, 0)
}

// A namespace where the writer may not write keeps its keys over any restart, and
// holds up no other one.
func TestRemovalsThatAreRefusedHoldUpNoOtherNamespaceAfterARestart(t *testing.T) {
	t.Parallel()
	b := newClusterOf(t, 400, 2)
	refused := func() (objects []*annotated.Object) {
		for _, o := range b.others[:240] {
			if o.Namespace == "ns-0" {
				objects = append(objects, o)
			}
		}
		return objects
	}()
	for n := range 4 { // they may not be written; each minute as many as pass
		some := refused[n*30 : (n+1)*30]
		b.unask(some...)
		b.lookAt(some)
		b.clock.Step(2 * time.Minute)
	}
	b.expectRemovals(120, 0)

	next := b.restarted()
	next.lookAt(refused)
	next.expectRemovals(0, 120)
	next.unask(next.others[301])
	next.clock.Step(2 * time.Minute)
	next.lookAt(next.others[301:302])
	next.expectRemovals(1, 120)
}

// restarted returns a watcher that knows nothing but the objects.
func (b *bench) restarted() *bench {
	b.t.Helper()
	next := newBench(b.t)
	next.object, next.others = nil, b.others
	next.clock.SetTime(b.clock.Now())
	return next
}
