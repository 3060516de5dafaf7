package installation

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	// users is the number of concurrent users.
	users = 4
	// pause is the minimum interval between two ConfigMaps of a user.
	pause = 300 * time.Millisecond
	// key is the key that the ConfigMaps request.
	key = "mydata"
	// endurance is how long a user waits for data while services change.
	endurance = 6 * time.Minute
)

// Traffic simulates users. Each creates a ConfigMap, waits for its data, requests another
// page, waits again, and continues with the next.
type Traffic struct {
	world *world.World
	stop  func()
	ended chan struct{}

	mu      sync.Mutex
	done    []*world.ConfigMap
	slowest time.Duration
}

// Start starts the users. Names of their ConfigMaps and pages start with name.
func Start(ctx context.Context, w *world.World, name string) *Traffic {
	GinkgoHelper()
	stopped := make(chan struct{})
	t := &Traffic{world: w, stop: sync.OnceFunc(func() { close(stopped) }), ended: make(chan struct{})}
	var group sync.WaitGroup
	for user := range users {
		group.Go(func() {
			defer GinkgoRecover()
			t.work(ctx, stopped, fmt.Sprintf("%s-%d", name, user))
		})
	}
	go func() {
		defer close(t.ended)
		group.Wait()
	}()
	DeferCleanup(func() {
		t.stop()
		<-t.ended
	})
	return t
}

// work simulates one user.
func (t *Traffic) work(ctx context.Context, stopped <-chan struct{}, user string) {
	next := time.NewTicker(pause)
	defer next.Stop()
	for n := 0; ; n++ {
		cm := t.edit(ctx, fmt.Sprintf("%s-%04d", user, n))
		t.mu.Lock()
		t.done = append(t.done, cm)
		t.mu.Unlock()
		select {
		case <-stopped:
			return
		case <-next.C:
		}
	}
}

// edit creates a ConfigMap that requests a page, and then requests another page.
func (t *Traffic) edit(ctx context.Context, name string) *world.ConfigMap {
	first := t.world.Origin.Page("/" + name + "/1").Says(world.Body(1))
	second := t.world.Origin.Page("/" + name + "/2").Says(world.Body(2))
	since := time.Now()
	cm := t.world.Create(ctx, name, world.Asking(key+"="+first.URL()),
		world.Holding("other", "theirs"), world.Labelled("app", "cool"))
	t.await(ctx, cm, world.Body(1), since)
	since = time.Now()
	cm.Ask(ctx, key+"="+second.URL())
	t.await(ctx, cm, world.Body(2), since)
	return cm
}

// await waits for data and records the longest wait.
func (t *Traffic) await(ctx context.Context, cm *world.ConfigMap, value string, since time.Time) {
	cm.Within(endurance).EventuallyHasData(ctx, key, value)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slowest = max(t.slowest, time.Since(since))
}

// Done returns the number of finished ConfigMaps.
func (t *Traffic) Done() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.done)
}

// ShouldEnd stops the users. Each must still get its data, and every change must have led to exactly one write.
// It returns the longest wait for data.
func (t *Traffic) ShouldEnd(ctx context.Context) time.Duration {
	GinkgoHelper()
	t.stop()
	Eventually(ctx, t.ended).WithTimeout(endurance).Should(BeClosed(), "all users got their data")
	t.world.ShouldBeWritten(ctx, t.done, 2)
	done := map[string]bool{}
	for _, cm := range t.done {
		done[cm.Name] = true
	}
	for _, e := range t.world.Events(ctx) {
		Expect(done).NotTo(HaveKey(e.Regarding.Name), "Event %s", e.Reason)
	}
	AddReportEntry("traffic",
		fmt.Sprintf("%d ConfigMaps, the longest wait for data took %s", t.Done(), t.slowest.Round(time.Millisecond)))
	return t.slowest
}
