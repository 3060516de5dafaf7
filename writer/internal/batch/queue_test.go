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

// first returns the first letter of a key as its share.
func first(key string) string { return key[:1] }

func newQueue(t *testing.T, concurrency int) (*batch.Queue[string, int, int], *recorder) {
	t.Helper()
	r := &recorder{each: map[string]*atomic.Int32{}}
	return batch.New(batch.Config[string, int, int]{
		Linger: linger, Concurrency: concurrency, Share: first, Work: r.work(t),
	}), r
}

func TestWhatArrivesTogetherIsDoneTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := newQueue(t, 4)
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		a, b := q.Add(ctx, "x", 1), q.Add(ctx, "x", 2)
		<-time.After(linger - 1)
		c := q.Add(ctx, "x", 3)
		cancel() // what was begun is finished
		<-time.After(2)
		d, e := q.Add(t.Context(), "x", 4), q.Add(t.Context(), "x", 5) // during the work
		if got := []int{<-a, <-b, <-c}; !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("outcomes %v", got)
		}
		if took := time.Since(begun); took != time.Second+linger {
			t.Errorf("took %v", took)
		}
		if got := []int{<-d, <-e}; !slices.Equal(got, []int{4, 5}) {
			t.Errorf("outcomes %v", got)
		}
		if took := time.Since(begun); took != 2*time.Second+linger {
			t.Errorf("took %v: what waited lingered again", took)
		}
		q.Wait()
		if len(r.batches) != 2 {
			t.Errorf("batches %v", r.batches)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, r := newQueue(t, 2)
		var outcomes []<-chan int
		for n, key := range []string{"a", "b", "c", "d", "e", "a"} {
			outcomes = append(outcomes, q.Add(t.Context(), key, n))
		}
		for n, c := range outcomes {
			if got := <-c; got != n {
				t.Errorf("outcome %d of %d", got, n)
			}
		}
		q.Wait()
		if r.most != 2 || len(r.batches) != 5 {
			t.Errorf("%d at a time, batches %v", r.most, r.batches)
		}
	})
}

func TestAShareWaitsForNoBacklogOfAnother(t *testing.T) {
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
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("took %v, and each work takes 1 s", took)
		}
		q.Wait()
	})
}
