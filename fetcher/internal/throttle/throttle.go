package throttle

import (
	"slices"
	"sync"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Config limits a Throttle.
type Config struct {
	// Slots is the maximum number of concurrent GETs, each until its outcome is published.
	Slots int
	// PerHost is the maximum number of concurrent GETs to one host. Above 1, one of them is reserved
	// for a second namespace.
	PerHost int
	// Share is the maximum fraction of the slots for one namespace while others wait, above 0 to 1.
	Share float64
}

// Defaults returns the default limits.
func Defaults() Config { return Config{Slots: 64, PerHost: 8, Share: 0.5} }

// Request asks for a slot for a delivered key.
type Request struct {
	// Host is the authority of the URL: host and port.
	Host string
	// Namespace of the key.
	Namespace string
	// Backlog reports whether more messages wait at the broker.
	Backlog bool
	// Urgent reports whether a person requested the GET. A pause of the host delays it only if the
	// namespace has another GET there.
	Urgent bool
}

// Wait explains why a GET may not start now.
type Wait struct {
	For v1.WaitsFor
	// Pause is the rest of the host's pause, or the time until a budget is refilled.
	Pause time.Duration
}

const (
	// contendedFor is how long the slots count as contended after GETs of different namespaces, or after a delivery
	// with a backlog.
	contendedFor = 10 * time.Second
	// firstClaimTime is the first estimate of the duration of a claim.
	firstClaimTime = 50 * time.Millisecond
)

// Throttle hands out slots. It is safe for concurrent use.
type Throttle struct {
	cfg Config
	// running counts the started keys.
	running sync.WaitGroup

	// mu guards everything below, and the hosts, lanes, namespaces and tickets. Exported methods lock it.
	mu         sync.Mutex
	stopped    bool
	hosts      map[string]*host
	namespaces map[string]*namespace
	// taken counts the slots of the process that are taken.
	taken int
	// queued has the queued and held keys, and bytes is their memory.
	queued map[pipeline.Key]*QueuedKey
	bytes  int
	// claimTime is the moving average of the duration of claims.
	claimTime time.Duration
	// backlogUntil is set while more messages wait at the broker, as far as the last delivery tells.
	backlogUntil time.Time
	// lastNamespace is the namespace of the last GET.
	lastNamespace  string
	contendedUntil time.Time
}

// New returns a throttle with a valid configuration.
func New(cfg Config) *Throttle {
	return &Throttle{
		cfg: cfg, claimTime: firstClaimTime,
		hosts: map[string]*host{}, namespaces: map[string]*namespace{}, queued: map[pipeline.Key]*QueuedKey{},
	}
}

// Stop prevents further starts of queued keys, and waits for the started ones.
func (t *Throttle) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.running.Wait()
}

// Acquire returns a slot for a delivered key, or what the key has to wait for. It may itself wait for a moment.
func (t *Throttle) Acquire(r Request) (*Ticket, *Wait) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.backlogUntil = time.Time{}
	if r.Backlog {
		t.backlogUntil = now.Add(contendedFor)
	}
	ticket := &Ticket{lane: t.lane(r.Host, r.Namespace), urgent: r.Urgent}
	defer ticket.lane.forget(now)
	if wait := t.acquire(ticket, now); wait != nil {
		return nil, wait
	}
	return ticket, nil
}

// acquire takes the slots that a ticket lacks, or returns what it has to wait for.
func (t *Throttle) acquire(ticket *Ticket, now time.Time) *Wait {
	namespace := ticket.lane.namespace.name
	if t.lastNamespace != "" && t.lastNamespace != namespace {
		t.contendedUntil = now.Add(contendedFor)
	}
	t.lastNamespace = namespace
	wait := t.waitOf(ticket, now)
	switch {
	case wait == nil:
		ticket.take(now)
	case t.await(ticket, t.waitLimit(ticket, wait.For, now)):
		return nil
	}
	return wait
}

// await waits for a slot, without the lock, and reports whether it was granted.
func (t *Throttle) await(ticket *Ticket, wait time.Duration) bool {
	lane, h := ticket.lane, ticket.lane.host
	ticket.granted = make(chan struct{})
	lane.waiting++
	h.waiting = append(h.waiting, ticket)
	t.mu.Unlock()
	select {
	case <-ticket.granted:
	case <-time.After(wait):
	}
	t.mu.Lock()
	lane.waiting--
	h.waiting = slices.DeleteFunc(h.waiting, func(other *Ticket) bool { return other == ticket })
	return ticket.state == getting
}
