package reconcile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// holdUnrequested makes the object hold n keys and request none.
func (b *bench) holdUnrequested(n int) {
	s := status.Status{Keys: map[string]status.Entry{}}
	for i := range n {
		s.Keys[fmt.Sprint("k", i)] = status.Entry{SHA256: sum}
	}
	b.object.Status, b.object.Request = annotated.EntriesOf(s, nil), annotation.Request{}
	b.object.CommonOwner = annotation.Ownership{State: annotation.Ours}
}

// A forged status may have any number of entries.
func TestOneMessageRemovesAllKeysThatNoPairNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdUnrequested(50)
	b.reconcile()
	b.Expect(b.requests()).To(Equal(1))
	b.Expect(b.published()).To(BeZero())
}

// In a namespace without the writer's Role, every removal is refused.
func TestRefusedRemovalsAreRepeatedAtGrowingIntervals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdUnrequested(1)
	b.reconcile()
	for range 50 {
		b.clock.Step(repeat)
		b.reconcile()
	}
	b.Expect(b.requests()).To(And(BeNumerically(">=", 5), BeNumerically("<=", 12)), "in 50 intervals")
}

// The writer may lack permission to write in a namespace.
func TestRefusedRemovalsHoldBackNoOtherNamespaceAfterARestart(t *testing.T) {
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
	for n := range 4 { // the writer is refused; no batch exceeds the limits
		some := refused[n*30 : (n+1)*30]
		b.removePairs(some...)
		b.reconcileAll(some)
		b.clock.Step(2 * time.Minute)
	}
	b.expectRemovals(120, 0)

	next := b.restarted()
	next.reconcileAll(refused)
	next.expectRemovals(0, 120)
	next.removePairs(next.others[301])
	next.clock.Step(2 * time.Minute)
	next.reconcileAll(next.others[301:302])
	next.expectRemovals(1, 120)
}

// newCluster returns a bench with objects in one namespace. Each holds one requested key.
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
			Meta:            informer.Meta{NamespacedName: name, UID: types.UID(fmt.Sprint("uid-", n)), Version: 1},
			MainAnnotatedAt: b.clock.Now(),
			Request:         annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: "https://example.com"}}},
			Status:          entries(map[string]status.Entry{"k": {URL: "https://example.com", SHA256: sum}}),
			CommonOwner:     annotation.Ownership{State: annotation.Ours},
		})
	}
	b.reconcileAll(b.others)
	return b
}

func entries(keys map[string]status.Entry) annotated.Entries {
	return annotated.EntriesOf(status.Status{Keys: keys}, nil)
}

// reconcileAll reconciles objects after the coalescing interval and the next count of removals.
func (b *bench) reconcileAll(objects []*annotated.Object) {
	b.t.Helper()
	b.clock.Step(time.Second)
	for _, o := range objects {
		b.backlog.Reset() // as if fetchers received everything
		b.Expect(b.Reconcile(b.t.Context(), o.NamespacedName)).Error().NotTo(HaveOccurred())
	}
}

// removePairs removes the pair from objects, like a tool that drops annotations.
func (b *bench) removePairs(objects ...*annotated.Object) {
	for _, o := range objects {
		o.Request, o.SeenAt = annotation.Request{}, b.clock.Now()
	}
}

// restorePairs undoes removePairs.
func restorePairs(objects []*annotated.Object) {
	for _, o := range objects {
		o.Request = annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: "https://example.com"}}}
	}
}

// markRemoved acts like the writer after the removals.
func markRemoved(objects []*annotated.Object) {
	for _, o := range objects {
		o.Status = annotated.Entries{}
	}
}

// expectRemovals checks the numbers of published and stopped removals.
func (b *bench) expectRemovals(published, stopped int) {
	b.t.Helper()
	b.Expect(suitetest.MetricValue(b.registry, "curlmethat_watcher_removals_published_total")).
		To(BeEquivalentTo(published))
	b.Expect(suitetest.MetricValue(b.registry, "curlmethat_watcher_stopped_removals")).To(BeEquivalentTo(stopped))
}

// expectLogged expects a text once in the log.
func (b *bench) expectLogged(text string) {
	b.t.Helper()
	b.Expect(strings.Count(string(b.log.Contents()), text)).To(Equal(1), text)
}

func TestTooManyRemovalsInANamespaceAreStopped(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	b.removePairs(b.others...)
	b.reconcileAll(b.others)
	b.expectRemovals(0, 100)
	b.clock.Step(repeat)
	b.reconcileAll(b.others)
	b.expectRemovals(0, 100)
	b.expectLogged("--max-removals=0")
	b.expectLogged(`"namespace":"ns-0","removals":100,"keys":100`)
	b.Expect(b.emitted).To(And(HaveLen(len(b.others)), HaveEach(And(HaveField("Reason", "TooManyRemovals"),
		HaveField("Namespace", "ns-0"), HaveField("Note", ContainSubstring("namespace ns-0"))))))

	t.Log("Most keys are requested again, so the others are removed.")
	restorePairs(b.others[20:])
	b.clock.Step(time.Second)
	b.reconcileAll(b.others)
	b.expectRemovals(20, 0)
	b.expectLogged("no removals are stopped any more")
}

// Neither a forged status nor many own keys affect another namespace.
func TestANamespaceHoldsBackNoRemovalsOfAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner            annotation.OwnerState
		removed, stopped int
	}{
		"forged":           {annotation.None, 256, 0},
		"foreign":          {annotation.Foreign, 256, 0},
		"its own":          {annotation.Ours, 0, 256},
		"no managedFields": {annotation.Unknown, 0, 256},
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
				MainAnnotatedAt: b.clock.Now(), Status: entries(forged), CommonOwner: annotation.Ownership{State: c.owner},
			})
			b.reconcileAll(b.others[250:])
			b.removePairs(b.others[:5]...)
			b.reconcileAll(b.others[:5])
			b.expectRemovals(c.removed+5, c.stopped)

			t.Log("Stopped removals end with their object.")
			b.others = b.others[:250]
			b.removePairs(b.others[5:10]...)
			b.clock.Step(time.Second)
			b.reconcileAll(b.others[5:10])
			b.expectRemovals(c.removed+10, 0)
		})
	}
}

// A tool that drops annotations removes few keys per namespace, but in every namespace.
func TestRemovalsInTooManyNamespacesAreAllStopped(t *testing.T) {
	t.Parallel()
	b := newClusterOf(t, 100, 20)
	b.removePairs(b.others...)
	b.reconcileAll(b.others)
	b.expectRemovals(0, 100)
	b.clock.Step(repeat)
	b.reconcileAll(b.others)
	b.expectRemovals(0, 100)
	b.expectLogged("check what dropped their annotations")
	b.expectLogged(`"namespaces":20,"removals":100,"keys":100`)
	b.Expect(b.emitted).To(BeEmpty())

	t.Log("The keys are requested again, and removals continue.")
	restorePairs(b.others)
	b.removePairs(b.others[:5]...)
	b.clock.Step(time.Second)
	b.reconcileAll(b.others)
	b.expectRemovals(5, 0)
}

func TestRemovalsWithinAMinuteAddUp(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	for n := range 60 {
		one := b.others[n : n+1]
		b.removePairs(one...)
		b.reconcileAll(one)
		if n < 50 {
			markRemoved(one)
		}
	}
	b.clock.Step(time.Second)
	b.reconcileAll(b.others[59:60])
	b.expectRemovals(50, 10)

	t.Log("They are removed once the earlier ones are a minute old.")
	b.clock.Step(time.Minute + time.Second)
	b.reconcileAll(b.others[50:60])
	b.expectRemovals(60, 0)
}

func TestRemovalsWaitForTheNextCount(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	b.removePairs(b.others[0])
	b.reconcileAll(b.others[:1])
	b.clock.Step(coalesce)
	b.removePairs(b.others[1:]...)
	for _, o := range b.others[1:] {
		b.Expect(b.Reconcile(t.Context(), o.NamespacedName)).To(Equal(time.Second), "time until the next count")
	}
	b.expectRemovals(1, 0)
	b.reconcileAll(b.others[1:])
	b.expectRemovals(1, 99)
}

func TestStoppedRemovalsCostFewCountsOfManyObjects(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	b.removePairs(b.others...)
	b.countTakes = 100 * time.Millisecond
	b.reconcileAll(b.others)
	b.expectRemovals(0, 100)
	began, counts := b.clock.Now(), b.counts
	for b.clock.Since(began) < time.Minute {
		b.reconcileAll(b.others[:10])
	}
	b.Expect(b.counts-counts).To(BeNumerically("<=", 12), "in a minute")
}

func TestRemovalsWaitAtMostAMinuteAfterACountThatTookLong(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 100)
	b.removePairs(b.others[0])
	b.countTakes = 10 * time.Second
	b.reconcileAll(b.others[:1])
	b.removePairs(b.others[1])
	b.countTakes = 0
	b.clock.Step(time.Minute)
	b.reconcileAll(b.others[1:2])
	b.expectRemovals(2, 0)
}

func TestAFewNamespacesHoldBackNoOthers(t *testing.T) {
	t.Parallel()
	b := newClusterOf(t, 400, 20)
	for n, o := range b.others { // all keys in a fifth of the namespaces
		if n%20 < 4 {
			b.removePairs(o)
		}
	}
	b.reconcileAll(b.others)
	b.expectRemovals(80, 0)
}

func TestOrdinaryRemovalsAreNotStopped(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench) (removals int){
		"fifty keys of a small cluster": func(b *bench) int {
			b.removePairs(b.others[:50]...)
			return 50
		},
		"a deleted namespace": func(b *bench) int {
			b.others = b.others[90:]
			return 0
		},
		"suspended objects": func(b *bench) int {
			b.removePairs(b.others...)
			for _, o := range b.others {
				o.Request.Suspended = true
			}
			return 0
		},
		"invalid objects": func(b *bench) int {
			b.removePairs(b.others...)
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
			b.reconcileAll(all)
			b.expectRemovals(removals, 0)
		})
	}
}

func TestAFifthOfManyKeysIsRemoved(t *testing.T) {
	t.Parallel()
	b := newCluster(t, 400)
	b.removePairs(b.others[:80]...)
	b.reconcileAll(b.others[:80])
	b.expectRemovals(80, 0)

	t.Log("Repeated requests for pending removals do not count again.")
	b.clock.Step(repeat)
	b.reconcileAll(b.others[:80])
	b.expectRemovals(160, 0)
}

// restarted returns a new reconciler for the same objects.
func (b *bench) restarted() *bench {
	b.t.Helper()
	next := newBench(b.t)
	next.object, next.others = nil, b.others
	next.clock.SetTime(b.clock.Now())
	return next
}

func TestARemovalIsRepeatedOnlyIfTheWriterDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.request("https://example.com", "k")
	b.reconcile()
	b.write("k")
	b.request("https://example.com")
	b.Expect(b.reconcileLater()).To(Equal(repeat))
	b.Expect(b.requests()).To(Equal(1))
	b.clock.Step(time.Minute)
	b.Expect(b.reconcile()).To(Equal(repeat - time.Minute))
	b.Expect(b.requests()).To(Equal(1))

	b.clock.Step(repeat)
	b.Expect(b.reconcile()).To(Equal(repeat))
	b.Expect(b.requests()).To(Equal(2))

	b.index.Reset(b.index.Epoch()+1, nil) // the streams were recreated
	b.reconcileLater()
	b.Expect(b.requests()).To(Equal(3))
	b.object.Status = annotated.Entries{}
	b.Expect(b.reconcileLater()).To(BeZero())
	b.Expect(b.requests()).To(Equal(3))
}

// removeKey removes a key from the object.
func (b *bench) removeKey(k string) {
	b.object.Owners[k] = annotation.Ownership{State: annotation.None, Fingerprint: "none"}
}
