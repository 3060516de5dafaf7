// Package model holds what the pages of the console count: wants, timers and
// failures by host and namespace, and how far the consumers are. It reads the
// streams once, follows what passes, and reads again now and then; while no
// person looks it does nothing.
package model

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// How often the model reads, and how long it follows when no person looks.
const (
	pollEvery   = 5 * time.Second
	loadEvery   = time.Minute
	lookedFor   = time.Minute
	readTimeout = 30 * time.Second
	retryAfter  = 2 * time.Second
)

// Bounds of what waits in memory: in the client for the model, by subject, and in
// the model while it reads, in bytes. What there is no room for is read at the next
// load.
const (
	pendingMessages = 1 << 16
	pendingBytes    = 8 << 20
	queueBytes      = 16 << 20
	messageBytes    = 256 // of a message, beside its subject and data
)

// Model is safe for concurrent use. It works until the context of Run ends.
type Model struct {
	conn   *natsconn.Connection
	unless Unless
	now    func() time.Time
	look   chan struct{}

	mu      sync.Mutex
	looked  time.Time
	state   state
	counted counted
	// changed is closed and replaced at each load.
	changed chan struct{}
	// queue holds what passed while the streams were read; nil: nothing is read.
	queue []*nats.Msg
	// queued is the size of queue in bytes.
	queued int
}

// state is what is known.
type state struct {
	wants    map[pipeline.Key]Want
	timers   map[pipeline.Key]Timer
	failures map[operate.ReasonHost]uint64
	minutes  minutes
	overview overview.Overview
	samples  []Sample
	passed   passed
	asOf     time.Time
	err      error
	unread   int
	// missing are the parts that could not be read, and why.
	missing map[Part]error
}

// Want is what is kept of a want.
type Want struct {
	// UID of the ConfigMap, and the URL, which may hold secrets.
	UID, URL string
	// Host of the URL.
	Host string
	// Refresh is the interval; 0: none.
	Refresh time.Duration
	// Sequence in the stream; 0: not known yet.
	Sequence uint64
	// At is when it was published.
	At time.Time
}

// Timer is what is kept of a timer.
type Timer struct {
	operate.Timer

	// late: it should have fired when the streams were read.
	late bool
}

// Unless returns a context that ends, with its cause, when NATS refuses what is
// asked of a stream.
type Unless func(ctx context.Context, stream string) (context.Context, context.CancelFunc)

// New returns a model of what conn reaches.
func New(conn *natsconn.Connection, unless Unless, now func() time.Time) *Model {
	return &Model{conn: conn, unless: unless, now: now, look: make(chan struct{}, 1), changed: make(chan struct{}), state: state{
		wants: map[pipeline.Key]Want{}, timers: map[pipeline.Key]Timer{}, failures: map[operate.ReasonHost]uint64{}, minutes: minutes{},
	}}
}

// Run follows the pipeline while somebody looks, until ctx ends.
func (m *Model) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.look:
			m.follow(ctx)
		}
	}
}

// Touch reports that somebody looks, and does not wait.
func (m *Model) Touch() { m.touch() }

// Look reports that somebody looks. It waits until the streams have been read
// once since somebody began to look, or ctx ends.
func (m *Model) Look(ctx context.Context) {
	ready, changed := m.touch()
	if ready {
		return
	}
	select {
	case <-ctx.Done():
	case <-changed:
	}
}

func (m *Model) touch() (ready bool, changed chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now().Sub(m.looked) > lookedFor {
		m.state.asOf = time.Time{}
	}
	m.looked = m.now()
	select {
	case m.look <- struct{}{}:
	default:
	}
	return !m.state.asOf.IsZero(), m.changed
}

// Refresh reads now how far the consumers are.
func (m *Model) Refresh(ctx context.Context) { m.poll(ctx) }

func (m *Model) watched() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now().Sub(m.looked) <= lookedFor
}

// forgotten reports whether what was read is used no more: somebody looks again,
// after a pause that has not ended the following yet.
func (m *Model) forgotten() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.asOf.IsZero()
}

// subjects that are followed: never those with bodies.
func subjects() []string {
	return []string{"curl.want.>", "curl.timer.>", "curl.due.>", "curl.failure.>", "curl.result.failure.>"}
}

// follow works until no person has looked for lookedFor.
func (m *Model) follow(ctx context.Context) {
	for _, subject := range subjects() {
		if sub, err := m.conn.Conn.Subscribe(subject, m.take); err == nil {
			_ = sub.SetPendingLimits(pendingMessages, pendingBytes) // which fails once it has ended
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	loadAt := m.now()
	for m.watched() {
		if m.conn.Conn.IsConnected() {
			if !m.now().Before(loadAt) || m.forgotten() {
				loadAt = m.now().Add(loadEvery)
				if err := m.load(ctx); err != nil {
					loadAt = m.now().Add(retryAfter)
				}
			}
			m.poll(ctx)
		} else {
			loadAt = m.now() // what passed meanwhile is not known
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-m.woken(loadAt):
		}
	}
}

// woken fires soon after a load that has failed, or while there is no
// connection.
func (m *Model) woken(loadAt time.Time) <-chan time.Time {
	if wait := loadAt.Sub(m.now()); wait <= retryAfter {
		return time.After(max(wait, retryAfter/2))
	}
	return nil
}

// finish ends a load.
func (m *Model) finish(loaded state, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := m.queue
	m.queue, m.counted = nil, counted{}
	if err != nil {
		m.state.err = err
	} else {
		loaded.overview, loaded.samples, loaded.passed = m.state.overview, m.state.samples, m.state.passed
		m.state = loaded
		m.state.asOf = m.now()
		for _, msg := range queue {
			m.apply(msg)
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// Failures returns how many failures are kept, by reason and host.
func (m *Model) Failures() map[operate.ReasonHost]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.state.failures)
}
