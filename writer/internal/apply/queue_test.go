package apply

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// queued is a queue whose work takes a second for each batch, and that records the batches.
type queued struct {
	*WithT
	*queue
	each time.Duration

	mu      sync.Mutex
	open    sync.WaitGroup
	batches [][]string
	running map[types.NamespacedName]bool
	most    int
}

func newQueued(t *testing.T, concurrency int) *queued {
	t.Helper()
	q := &queued{WithT: NewWithT(t), each: time.Second, running: map[types.NamespacedName]bool{}}
	q.queue = newQueue(concurrency, func(ctx context.Context, ref types.NamespacedName, items []plan.Item) []Applied {
		applied, keys := make([]Applied, len(items)), make([]string, len(items))
		for i, item := range items {
			applied[i].Outcome, keys[i] = plan.Outcome(item.Key.Key), item.Key.Key
		}
		q.mu.Lock()
		q.Expect(ctx.Err()).NotTo(HaveOccurred(), "the context of the work is cancelled")
		q.Expect(q.running[ref]).To(BeFalse(), "two work on %s", ref)
		q.running[ref], q.batches = true, append(q.batches, keys)
		q.most = max(q.most, len(q.running))
		q.mu.Unlock()
		<-time.After(q.each)
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.running, ref)
		return applied
	})
	return q
}

// do adds results of one object in order, and returns when they are queued.
func (q *queued) do(ctx context.Context, namespace, name string, keys ...string) {
	for _, key := range keys {
		q.open.Go(func() {
			item := plan.Item{Key: pipeline.Key{Namespace: namespace, Name: name, Key: key}}
			applied, fits := q.Do(ctx, item, 1)
			q.Expect(fits).To(BeTrue())
			q.Expect(applied.Outcome).To(Equal(plan.Outcome(key)), "the write of another key")
		})
		synctest.Wait()
	}
}

func TestResultsOfOneObjectShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 8)
		ctx, cancel := context.WithCancel(t.Context())
		q.do(ctx, "ns", "cm", "0", "1", "2")
		cancel() // the work goes on
		<-time.After(2 * linger)
		q.do(t.Context(), "ns", "cm", "3", "4") // while the first batch runs
		q.open.Wait()
		q.Expect(q.batches).To(Equal([][]string{{"0", "1", "2"}, {"3", "4"}}))
	})
}

func TestABatchIsNotLargerThanAConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 8)
		for n, bytes := range []int{maxBatch / 2, maxBatch / 2, maxBatch / 2, 2 * maxBatch, 1, 1} {
			q.open.Go(func() {
				item := plan.Item{Key: pipeline.Key{Namespace: "ns", Name: "cm", Key: strconv.Itoa(n)}}
				item.Fence.Seq = uint64(9 - n)
				q.Do(t.Context(), item, bytes)
			})
			synctest.Wait()
		}
		q.open.Wait()
		q.Expect(q.batches).To(Equal([][]string{{"5", "4"}, {"3"}, {"2", "1"}, {"0"}}), "the oldest trigger first")
		q.Expect(q.shares).To(BeEmpty())
	})
}

func TestTheBodiesOfABatchDoNotOutlastIt(t *testing.T) {
	result := new(v1.Result)
	done := weak.Make(result)
	g := group{{item: plan.Item{Result: result}, bytes: maxBatch}, {bytes: maxBatch}}
	g.take()
	runtime.GC()
	NewWithT(t).Expect(done.Value()).To(BeNil())
	runtime.KeepAlive(&g)
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 2)
		for _, name := range []string{"a", "b", "c", "d", "e", "a"} {
			q.do(t.Context(), "namespace of "+name, name, "k")
		}
		q.open.Wait()
		q.Expect(q.most).To(Equal(2), "at a time")
		q.Expect(q.batches).To(HaveLen(5))
		q.Expect(q.shares).To(BeEmpty())
	})
}

func TestANamespaceDoesNotWaitForTheBacklogOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 8)
		q.each = time.Hour
		for n := range 20 {
			q.do(t.Context(), "a", strconv.Itoa(n), "k")
		}
		<-time.After(2 * linger)
		synctest.Wait()
		q.Expect(q.most).To(Equal(6), "three quarters")
		q.do(t.Context(), "b", "cm", "k")
		<-time.After(2 * linger)
		synctest.Wait()
		q.Expect(q.most).To(Equal(7))
		q.open.Wait()
	})
}

func TestAFreeSlotGoesToTheNamespaceWithTheFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueued(t, 4)
		for n := range 40 {
			q.do(t.Context(), "a", strconv.Itoa(n), "k")
			q.do(t.Context(), "b", strconv.Itoa(n), "k")
		}
		for n := range 5 {
			began := time.Now()
			q.Do(t.Context(), plan.Item{Key: pipeline.Key{Namespace: "c", Name: strconv.Itoa(n)}}, 1)
			q.Expect(time.Since(began)).To(BeNumerically("<=", 2*time.Second+linger), "each work takes 1 s")
		}
		q.open.Wait()
	})
}

func TestASlowNamespaceGetsThreeQuartersOfTheSpace(t *testing.T) {
	for name, tt := range map[string]struct {
		bytes int
		took  time.Duration
		want  int
	}{
		"slow":              {1, slowAfter + 1, 192},
		"slow, large":       {1 << 20, slowAfter + 1, 48},
		"as fast as others": {1, slowAfter - time.Second, 256},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueued(t, 8)
			add := func(namespace string, bytes int) (fits bool) {
				fits = true
				q.open.Go(func() {
					if _, ok := q.Do(t.Context(), plan.Item{Key: pipeline.Key{Namespace: namespace}}, bytes); !ok {
						fits = false
					}
				})
				synctest.Wait()
				return fits
			}
			q.each = tt.took
			add("a", 0)
			<-time.After(tt.took - time.Second)
			add("a", tt.bytes) // waits for the next batch, so that the namespace is remembered
			<-time.After(time.Second + 2*linger)
			got := 1
			for got < 256 && add("a", tt.bytes) {
				got++
			}
			q.Expect(got).To(Equal(tt.want), name)
			q.Expect(add("b", tt.bytes)).To(BeTrue(), name)
			q.open.Wait()
			q.Expect(q.shares).To(BeEmpty(), name)
		})
	}
}

func TestAPanicEndsOnlyTheWorkOnItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		q := newQueue(1, func(_ context.Context, ref types.NamespacedName, items []plan.Item) []Applied {
			if ref.Name == "poison" {
				panic("the planner is wrong")
			}
			return make([]Applied, len(items))
		})
		do := func(name string) (fits bool) {
			_, fits = q.Do(t.Context(), plan.Item{Key: pipeline.Key{Namespace: "ns", Name: name, Key: "key"}}, 1)
			return fits
		}
		for range 2 {
			g.Expect(func() { do("poison") }).To(PanicWith(And(
				ContainSubstring("the planner is wrong"), ContainSubstring("queue_test.go"))))
		}
		g.Expect(do("good")).To(BeTrue())
		g.Expect(q.shares).To(BeEmpty())
	})
}
