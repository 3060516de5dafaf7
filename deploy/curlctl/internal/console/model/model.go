// Package model holds what the pages of the console count: wants, timers and
// failures by host and namespace, and how far the consumers are. It reads the
// streams once, follows what passes, and reads again now and then; while no
// person looks it does nothing.
//
// What is counted is counted as messages come, and lists are cut out of indexes, so
// that a look without a filter costs what it returns and not what there is.
package model

import (
	"cmp"
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

// pendingMessages bounds what waits in the client for the model. What there is no room
// for is read at the next load.
const pendingMessages = 1 << 14

// Model is safe for concurrent use. It works until the context of Run ends.
type Model struct {
	conn     *natsconn.Connection
	refusals *natsconn.Refusals
	now      func() time.Time
	look     chan struct{}

	mu     sync.Mutex
	looked time.Time
	// changed is closed and replaced at each load, of which loads is the number.
	changed chan struct{}
	loads   uint32
	expired time.Time

	*index
	// failures that are stored, and how many.
	failures map[operate.ReasonHost]uint64
	stored   uint64
	overview overview.Overview
	samples  []Sample
	passed   passed
	asOf     time.Time
	err      error
	unread   int
	// missing are the parts that could not be read, and why; unfollowed is why what
	// passes of some is not seen.
	missing    map[Part]error
	unfollowed error
	// ahead is how far this clock is ahead of the server's.
	ahead time.Duration
}

// New returns a model of what conn reaches; refusals are what NATS refuses on it.
func New(conn *natsconn.Connection, refusals *natsconn.Refusals, now func() time.Time) *Model {
	return &Model{
		conn: conn, refusals: refusals, now: now, look: make(chan struct{}, 1), changed: make(chan struct{}),
		index: newIndex(), failures: map[operate.ReasonHost]uint64{},
	}
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
		m.asOf = time.Time{}
	}
	m.looked = m.now()
	select {
	case m.look <- struct{}{}:
	default:
	}
	return !m.asOf.IsZero(), m.changed
}

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
	return m.asOf.IsZero()
}

// subjects that are followed: never those with bodies.
func subjects() []string {
	return []string{
		pipeline.KindWant.All(), pipeline.KindTimer.All(), pipeline.KindDue.All(), pipeline.KindFailure.All(),
		pipeline.DeadLetterSubjects("", "", pipeline.Key{}),
	}
}

// follow works until no person has looked for lookedFor.
func (m *Model) follow(ctx context.Context) {
	var refused []func() error
	passing := make(chan *nats.Msg, pendingMessages) // one, which leaves them in their order
	for _, subject := range subjects() {
		allowed, end := m.refusals.CancelOnDenied(ctx, subject)
		defer end()
		refused = append(refused, func() error { return context.Cause(allowed) })
		if sub, err := m.conn.Conn.ChanSubscribe(subject, passing); err == nil {
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	following, end := context.WithCancel(ctx)
	defer end()
	go m.takeAll(following, passing)
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
			m.Poll(ctx)
			m.followed(refused)
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

// followed notes which subjects NATS refuses to be followed.
func (m *Model) followed(refused []func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unfollowed = nil
	for _, one := range refused {
		m.unfollowed = cmp.Or(m.unfollowed, one())
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

// Failures returns how many failures are kept, by reason and host.
func (m *Model) Failures() map[operate.ReasonHost]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.failures)
}
