//go:build !race

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
	// host is the host of all keys.
	host = "a"
	// minTimer is the minimum delay of a timer, and timerLag its maximum lateness (nats-server 2.15.3).
	minTimer = 250 * time.Millisecond
	timerLag = 20 * time.Millisecond
	// brokerTime is how long the broker takes for one message (8,000 per second).
	brokerTime = 125 * time.Microsecond
	// claimFor is the lease of a claimed key.
	claimFor = 30 * time.Second
)

// simulation is a simulated broker with fetchers, whose throttles are real, in virtual time.
type simulation struct {
	cfg     throttle.Config
	latency time.Duration
	// roundTrip is the network's round-trip time.
	roundTrip time.Duration
	random    *rand.Rand

	mu sync.Mutex
	// more is signalled for each message, and over at the end of the simulation.
	more, over *sync.Cond
	// free is when the broker will have handled all messages so far.
	free     time.Time
	queue    []message
	keys     map[pipeline.Key]*state
	fetchers []*fetcher
	// left counts the keys that were not fetched yet.
	left  int
	began time.Time
	ended bool
	// busy is the total duration of GETs, waited the total waiting time of keys, and dues the number of fired timers.
	busy, waited time.Duration
	dues         int
}

// state is the broker's state of a key.
type state struct {
	want, timer int
	pending     *time.Timer
	since       time.Time
	fetched     bool
}

type message struct {
	key  pipeline.Key
	want int
	due  bool
	// since is the start of the wait.
	since time.Time
}

type fetcher struct {
	s        *simulation
	throttle *throttle.Throttle
	dead     bool
	busy     time.Duration
}

// simulate runs a test with fetchers in a bubble. Each GET takes latency.
func simulate(t *testing.T, latency time.Duration, fetchers int, test func(*simulation)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		s := &simulation{
			cfg: throttle.Defaults(), latency: latency, roundTrip: 500 * time.Microsecond, random: rand.New(rand.NewPCG(1, 2)),
			keys: map[pipeline.Key]*state{}, began: time.Now(),
		}
		s.more, s.over = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
		for range fetchers {
			s.start()
		}
		test(s)
		s.end()
		pass(time.Minute) // until all goroutines have ended
	})
}

func (s *simulation) start() *fetcher {
	f := &fetcher{s: s, throttle: throttle.New(s.cfg)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetchers = append(s.fetchers, f)
	for range s.cfg.Slots {
		go f.work()
	}
	return f
}

// publish publishes wants of the first n keys of a namespace that were not fetched yet.
func (s *simulation) publish(n int, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	for i := range n {
		k := pipeline.Key{Namespace: namespace, Name: strconv.Itoa(i)}
		have, ok := s.keys[k]
		if !ok {
			have = &state{since: time.Now()}
			s.keys[k] = have
			s.left++
		}
		if have.fetched {
			continue
		}
		have.want++
		s.setTimer(have, nil, 0)
		s.queue = append(s.queue, message{key: k, want: have.want})
	}
	s.more.Broadcast()
}

// setTimer replaces the timer of a key.
func (s *simulation) setTimer(have *state, m *message, wait time.Duration) int {
	if have.timer++; have.pending != nil {
		have.pending.Stop()
		have.pending = nil
	}
	if m == nil {
		return 0
	}
	set, fired := have.timer, *m
	fired.due = true
	have.pending = time.AfterFunc(max(wait, minTimer)+time.Duration(s.random.Int64N(int64(timerLag))), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if have.timer == set {
			have.timer++
			s.dues++
			s.queue = append(s.queue, fired)
			s.more.Signal()
		}
	})
	return set
}

// message waits until the broker has handled one message.
func (s *simulation) message() {
	s.mu.Lock()
	wait := max(0, time.Until(s.free)) + brokerTime
	s.free = time.Now().Add(wait)
	s.mu.Unlock()
	pass(wait + s.roundTrip)
}

// run lets the fetchers work until all keys are fetched, or until the limit.
func (s *simulation) run(limit time.Duration) (took time.Duration) {
	timer := time.AfterFunc(limit, s.end)
	defer timer.Stop()
	s.mu.Lock()
	for s.left > 0 && !s.ended {
		s.over.Wait()
	}
	took = time.Since(s.began)
	for _, have := range s.keys {
		if !have.fetched {
			s.waited += time.Since(have.since)
		}
	}
	s.mu.Unlock()
	s.end()
	pass(time.Minute)
	return took
}

func (s *simulation) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, have := range s.keys {
		s.setTimer(have, nil, 0)
	}
	s.more.Broadcast()
	s.over.Broadcast()
	for _, f := range s.fetchers {
		go f.throttle.Stop()
	}
}

func (f *fetcher) work() {
	s := f.s
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.ended && !f.dead {
			s.more.Wait()
		}
		if s.ended || f.dead {
			s.mu.Unlock()
			return
		}
		m := s.queue[0]
		s.queue = s.queue[1:]
		backlog := len(s.queue) > 0
		s.mu.Unlock()
		f.handle(m, backlog)
	}
}

func (f *fetcher) handle(m message, backlog bool) {
	s := f.s
	if m.due && f.throttle.IsQueued(m.key, uint64(m.want)) {
		f.park(m)
		return
	}
	s.message() // read the want
	s.mu.Lock()
	stale := s.keys[m.key].want != m.want
	s.mu.Unlock()
	if stale {
		return
	}
	slot, wait := f.throttle.Acquire(throttle.Request{Host: host, Namespace: m.key.Namespace, Backlog: backlog})
	if wait != nil {
		f.park(m)
		return
	}
	defer slot.End()
	f.get(m, slot)
}

func (f *fetcher) park(m message) {
	s := f.s
	s.mu.Lock()
	lease := throttle.Lease(!m.due, s.random.Float64())
	s.mu.Unlock()
	if m.since.IsZero() {
		m.since = time.Now()
	}
	s.message()
	s.mu.Lock()
	have := s.keys[m.key]
	if have.want != m.want || f.dead {
		s.mu.Unlock()
		return
	}
	timer := s.setTimer(have, &m, lease)
	s.mu.Unlock()
	f.throttle.Enqueue(&throttle.QueuedKey{
		Key: m.key, Host: host, Want: uint64(m.want), Rank: throttle.Wanted, Since: m.since, Bytes: 300,
		Until: time.Now().Add(lease), Start: func(slot *throttle.Ticket) { f.claim(m, timer, slot) },
	})
}

// claim claims and fetches a started key.
func (f *fetcher) claim(m message, timer int, slot *throttle.Ticket) {
	s := f.s
	s.message()
	s.mu.Lock()
	have := s.keys[m.key]
	won := have.timer == timer && have.pending != nil && !f.dead && !s.ended
	if won {
		s.setTimer(have, &m, claimFor)
	}
	s.mu.Unlock()
	if !won {
		return
	}
	s.message() // read the want
	if slot.Acquire() != nil {
		f.park(m)
		return
	}
	f.get(m, slot)
}

func (f *fetcher) get(m message, slot *throttle.Ticket) {
	s := f.s
	began := time.Now()
	pass(s.latency)
	s.mu.Lock()
	s.busy += time.Since(began)
	f.busy += time.Since(began)
	dead := f.dead
	have := s.keys[m.key]
	if !dead && have.want == m.want && !have.fetched {
		have.fetched = true
		s.waited += time.Since(have.since)
		s.setTimer(have, nil, 0)
		if s.left--; s.left == 0 {
			s.over.Broadcast()
		}
	}
	s.mu.Unlock()
	slot.Resume()
	slot.Release()
	s.message() // publish the result
	slot.End()
}

// report logs the figures. It returns the used fraction of the slots, and the number of messages per
// waiting key and minute.
func (s *simulation) report(t *testing.T, took time.Duration) (used, perMinute float64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	used = s.busy.Seconds() / (float64(s.cfg.PerHost*len(s.fetchers)) * took.Seconds())
	perMinute = float64(s.dues) / s.waited.Minutes()
	t.Logf("%.3f of the slots used in %s, %.2f messages per waiting key and minute",
		used, took.Round(time.Millisecond), perMinute)
	return used, perMinute
}

func TestAQueueUsesTheSlots(t *testing.T) {
	const network = 500 * time.Microsecond
	for _, latency := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
		for _, size := range []struct {
			wants, fetchers  int
			limit, roundTrip time.Duration
			least            float64
		}{
			{1_000, 1, 10 * time.Minute, network, 0.85},
			{1_000, 1, 10 * time.Minute, 40 * time.Millisecond, 0.85}, // claims of a busy machine
			{1_000, 4, 10 * time.Minute, network, 0.7},                // the last rounds do not use every slot
			{16_000, 4, 4 * time.Minute, network, 0.8},
		} {
			name := fmt.Sprintf("%s/%d keys/%d fetchers/%s", latency, size.wants, size.fetchers, size.roundTrip)
			t.Run(name, func(t *testing.T) {
				simulate(t, latency, size.fetchers, func(s *simulation) {
					s.roundTrip = size.roundTrip
					s.publish(size.wants, "one")
					took := s.run(size.limit)
					used, perMinute := s.report(t, took)
					if latency >= 100*time.Millisecond && took > 10*time.Second && used < size.least {
						t.Errorf("used %.3f of the slots", used)
					}
					if perMinute > 1.1 {
						t.Errorf("%.2f messages per waiting key and minute", perMinute)
					}
				})
			})
		}
	}
}

// An edit cancels the lease of a queued key. The claim that then fails must not leave a slot idle, and
// the key keeps its place.
func TestEditsLeaveNoSlotIdle(t *testing.T) {
	for _, latency := range []time.Duration{100 * time.Millisecond, time.Second} {
		for _, fetchers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/%d fetchers", latency, fetchers), func(t *testing.T) {
				simulate(t, latency, fetchers, func(s *simulation) {
					const keys = 2_000
					s.publish(keys, "one")
					for i := range 60 { // a quarter is edited every five seconds
						time.AfterFunc(time.Duration(5*(i+1))*time.Second, func() { s.publish(keys/4, "one") })
					}
					used, _ := s.report(t, s.run(5*time.Minute+10*time.Second))
					least := 0.85
					if fetchers > 1 {
						least = 0.8
					}
					if used < least {
						t.Errorf("used %.3f of the slots", used)
					}
					if edited := s.keys[pipeline.Key{Namespace: "one", Name: "0"}]; latency == time.Second && !edited.fetched {
						t.Error("a key that is edited every five seconds was never fetched")
					}
				})
			})
		}
	}
}

func TestANewFetcherTakesItsShareOfWaitingKeys(t *testing.T) {
	simulate(t, time.Second, 1, func(s *simulation) {
		s.publish(16_000, "one")
		pass(2 * time.Minute)
		f := s.start()
		pass(30 * time.Second)
		s.mu.Lock()
		at := f.busy
		s.mu.Unlock()
		pass(30 * time.Second)
		s.mu.Lock()
		used := (f.busy - at).Seconds() / (30 * float64(s.cfg.PerHost))
		s.mu.Unlock()
		t.Logf("%.3f of its slots used from 30 s to 60 s after its start", used)
		if used < 0.8 {
			t.Errorf("%.3f of its slots used", used)
		}
	})
}

func TestOtherFetchersGetTheKeysOfAKilledOne(t *testing.T) {
	simulate(t, 5*time.Second, 2, func(s *simulation) {
		s.publish(500, "one")
		pass(90 * time.Second)
		f, other := s.fetchers[0], s.fetchers[1]
		s.mu.Lock()
		f.dead = true
		s.more.Broadcast()
		s.mu.Unlock()
		f.throttle.Stop()
		pass(61 * time.Second)
		s.mu.Lock()
		missing := 0
		for k, have := range s.keys {
			if !other.throttle.IsQueued(k, uint64(have.want)) && !have.fetched {
				missing++
			}
		}
		s.mu.Unlock()
		if missing > s.cfg.PerHost {
			t.Errorf("%d keys are missing", missing)
		}
	})
}
