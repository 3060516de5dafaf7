package batch_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/writer/internal/batch"
)

const linger = 5 * time.Millisecond

// recorder records batches. Each batch takes a second.
type recorder struct {
	mu      sync.Mutex
	batches [][]int
	running atomic.Int32
	most    int32
	each    map[string]*atomic.Int32
}

func (r *recorder) work(t *testing.T) func(context.Context, string, []int) []int {
	t.Helper()
	return func(ctx context.Context, key string, works []int) []int {
		if ctx.Err() != nil {
			t.Error("the context of the work is cancelled")
		}
		r.mu.Lock()
		r.batches = append(r.batches, works)
		r.most = max(r.most, r.running.Add(1))
		if r.each[key] == nil {
			r.each[key] = &atomic.Int32{}
		}
		mine := r.each[key]
		r.mu.Unlock()
		if mine.Add(1) > 1 {
			t.Errorf("two work on %s", key)
		}
		<-time.After(time.Second)
		mine.Add(-1)
		r.running.Add(-1)
		return slices.Clone(works)
	}
}

// first returns the first letter of a key, which is its share.
func first(key string) string { return key[:1] }

func newQueue(t *testing.T, concurrency int) (*batch.Queue[string, int, int], *recorder) {
	t.Helper()
	r := &recorder{each: map[string]*atomic.Int32{}}
	return batch.New(batch.Config[string, int, int]{
		Linger: linger, Concurrency: concurrency, Share: first, Work: r.work(t),
	}), r
}

func TestWorkThatArrivesTogetherIsDoneTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := newQueue(t, 4)
		g, begun := NewWithT(t), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		a, b := q.Add(ctx, "x", 1), q.Add(ctx, "x", 2)
		<-time.After(linger - 1)
		c := q.Add(ctx, "x", 3)
		cancel() // started work is finished
		<-time.After(2)
		d, e := q.Add(t.Context(), "x", 4), q.Add(t.Context(), "x", 5) // during the work
		g.Expect([]int{<-a, <-b, <-c}).To(Equal([]int{1, 2, 3}))
		g.Expect(time.Since(begun)).To(Equal(time.Second + linger))
		g.Expect([]int{<-d, <-e}).To(Equal([]int{4, 5}))
		g.Expect(time.Since(begun)).To(Equal(2*time.Second+linger), "work that waited does not linger again")
		q.Wait()
		g.Expect(r.batches).To(HaveLen(2))
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := newQueue(t, 2)
		g := NewWithT(t)
		var outcomes []<-chan int
		for n, key := range []string{"a", "b", "c", "d", "e", "a"} {
			outcomes = append(outcomes, q.Add(t.Context(), key, n))
		}
		for n, c := range outcomes {
			g.Expect(<-c).To(Equal(n))
		}
		q.Wait()
		g.Expect(r.most).To(BeEquivalentTo(2), "at a time")
		g.Expect(r.batches).To(HaveLen(5))
	})
}

func TestAShareDoesNotWaitForTheBacklogOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newQueue(t, 2)
		begun := time.Now()
		for n := range 20 {
			q.Add(t.Context(), "a"+strconv.Itoa(n), n)
		}
		<-time.After(linger + time.Millisecond)
		for _, key := range []string{"b1", "c1"} {
			<-q.Add(t.Context(), key, 0)
		}
		NewWithT(t).Expect(time.Since(begun)).To(BeNumerically("<=", 5*time.Second), "each work takes 1 s")
		q.Wait()
	})
}
