package throttle_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// timerFloor is the least time from the publish of a timer until it fires,
	// and timerLate by how much later it may fire (nats-server 2.15.2).
	timerFloor = 250 * time.Millisecond
	timerLate  = 20 * time.Millisecond
	// publishTime is what setting a timer takes while all workers do so: 8,000
	// are set in a second.
	publishTime = 8 * time.Millisecond
	// advances is how many keys a GET may advance.
	advances = 4
)

// simulation is a broker and a fetcher of which all but the throttle takes
// place in the virtual time of a bubble.
type simulation struct {
	throttle *throttle.Throttle
	cfg      throttle.Config
	latency  func() time.Duration
	random   *rand.Rand

	mu    sync.Mutex
	queue []want
	more  *sync.Cond
	left  int
	parks int
	busy  time.Duration
	waits map[string]time.Duration
	began time.Time
	// timers are the pending ones by key, and named is how many keys there are.
	timers map[pipeline.Key]pending
	named  int
}

type pending struct {
	*time.Timer
	want want
}

type want struct {
	namespace, host string
	reserved        bool
	key             pipeline.Key
	// fixed: it cannot be advanced.
	fixed bool
}

func simulate(t *testing.T, cfg throttle.Config, latency func() time.Duration) *simulation {
	t.Helper()
	th, err := throttle.New(cfg, throttle.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{
		throttle: th, cfg: cfg, latency: latency, random: rand.New(rand.NewPCG(1, 2)),
		waits: map[string]time.Duration{}, timers: map[pipeline.Key]pending{}, began: time.Now(),
	}
	s.more = sync.NewCond(&s.mu)
	return s
}

func (s *simulation) publish(n int, w want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.named++
		w.key.Name = strconv.Itoa(s.named)
		s.queue = append(s.queue, w)
	}
	s.left += n
	s.more.Broadcast()
}

// publishAfter publishes wants later; run waits for them.
func (s *simulation) publishAfter(d time.Duration, n int, w want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left += n
	time.AfterFunc(d, func() {
		s.publish(n, w)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left -= n
	})
}

// run lets as many workers as there are slots handle all wants.
func (s *simulation) run() (took time.Duration) {
	var workers sync.WaitGroup
	for range s.cfg.Slots {
		workers.Go(s.work)
	}
	workers.Wait()
	return time.Since(s.began)
}

func (s *simulation) work() {
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && s.left > 0 {
			s.more.Wait()
		}
		if s.left == 0 {
			s.mu.Unlock()
			return
		}
		w := s.queue[0]
		s.queue = s.queue[1:]
		backlog := len(s.queue) > 0
		s.mu.Unlock()
		s.handle(w, backlog)
	}
}

func (s *simulation) handle(w want, backlog bool) {
	r := throttle.Request{Host: w.host, Namespace: w.namespace, Backlog: backlog, Reserved: w.reserved}
	if !w.fixed {
		r.Waiter = &throttle.Waiter{Key: w.key}
	}
	slot, busy := s.throttle.Acquire(r)
	if busy != nil {
		pass(publishTime)
		s.park(w, busy.Wait)
		return
	}
	latency := s.latency()
	pass(latency)
	slot.Resume()
	slot.Release()
	for range advances {
		waiter, wait, ok := slot.Advance()
		if !ok {
			break
		}
		pass(publishTime)
		s.advance(waiter.Key, wait)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy += latency
	s.waits[w.namespace] = max(s.waits[w.namespace], time.Since(s.began))
	if s.left--; s.left == 0 {
		s.more.Broadcast()
	}
}

func (s *simulation) park(w want, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.reserved = true
	s.setTimer(w, wait)
}

// advance replaces a pending timer by an earlier one.
func (s *simulation) advance(key pipeline.Key, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.timers[key]; ok && t.Stop() {
		s.setTimer(t.want, wait)
	}
}

func (s *simulation) setTimer(w want, wait time.Duration) {
	s.parks++
	late := time.Duration(s.random.Int64N(int64(timerLate)))
	s.timers[w.key] = pending{want: w, Timer: time.AfterFunc(max(wait, timerFloor)+late, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, w.key)
		s.queue = append(s.queue, w)
		s.more.Signal()
	})}
}

// latencies of hosts, and how many wants come at once.
var (
	latencies = []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
		time.Second, 3 * time.Second, 10 * time.Second,
	}
	counts = []int{1_000, 3_000, 16_000}
)

func TestReservationsUseTheSlotsAndParkFewTimes(t *testing.T) {
	for _, latency := range latencies {
		for _, wants := range counts {
			// All that is parked before the first answer is parked by a guess.
			for known, mostParks := range map[bool]float64{true: 1.35, false: 2} {
				t.Run(fmt.Sprintf("%d wants, answers after %s, used before: %t", wants, latency, known), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						used, parks, took := measure(t, scenario{latency: latency, wants: wants, known: known})
						// A timer fires no sooner than timerFloor, which counts for what is short.
						if used < 0.85 && took > 5*time.Second {
							t.Errorf("used %.3f of the capacity", used)
						}
						if parks > mostParks {
							t.Errorf("%.2f parks for each GET, want at most %.2f", parks, mostParks)
						}
					})
				})
			}
		}
	}
}

// As after a restart of all fetchers: what is put off by a guess and is not advanced
// comes back to see whether anything is known, which costs a park and some seconds.
func TestRefreshesOfAHostNeverUsedBeforeAreNotPutOffForLong(t *testing.T) {
	const late, mostParks = 10 * time.Second, 2.5
	for _, latency := range latencies {
		for _, wants := range counts {
			t.Run(fmt.Sprintf("%d, answers after %s", wants, latency), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					used, parks, took := measure(t, scenario{latency: latency, wants: wants, fixed: true})
					if idle := time.Duration((1 - used/0.875) * float64(took)); idle > late {
						t.Errorf("took %s, %s longer than necessary", took, idle)
					}
					if parks > mostParks {
						t.Errorf("%.2f parks for each GET, want at most %.2f", parks, mostParks)
					}
				})
			})
		}
	}
}

// scenario is so many wants for one host.
type scenario struct {
	latency time.Duration
	wants   int
	// known: the host was used before; fixed: no want can be advanced.
	known, fixed bool
}

// measure lets the wants of a scenario be handled. It returns the part of the slots
// that was used, the parks for each GET, and how long it took.
func measure(t *testing.T, c scenario) (used, parks float64, took time.Duration) {
	t.Helper()
	w := want{namespace: "one", host: "a", fixed: c.fixed}
	s := simulate(t, throttle.Defaults(), func() time.Duration { return c.latency })
	if c.known {
		s.publish(1, w)
		s.run()
		s.began, s.busy = time.Now(), 0
	}
	s.publish(c.wants, w)
	took = s.run()
	used = float64(s.busy) / float64(time.Duration(s.cfg.PerHost)*took)
	parks = float64(s.parks) / float64(c.wants)
	t.Logf("%.3f of the capacity used, %.2f parks for each GET, %s in all", used, parks, took)
	return used, parks, took
}
