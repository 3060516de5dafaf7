// Package model holds the data of the console: wanted keys, timers, failures and consumers. While a
// page is open it reads the streams again and again, for at most a tenth of the time.
package model

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// readEvery is the minimum interval between readings. A long reading is followed by a pause
	// of readPause times its duration.
	readEvery   = time.Second
	readPause   = 9
	readTimeout = 30 * time.Second
	// objectsEvery is the minimum interval between readings of Kubernetes.
	objectsEvery = 10 * time.Second
	// PollEvery is the interval between looks at the consumers.
	PollEvery = 5 * time.Second
	// watchedFor is how long the model keeps reading after the last page was closed.
	watchedFor = time.Minute
)

// SampleCount is the number of stored samples, one per PollEvery.
const SampleCount = 30

// Model is safe for concurrent use.
type Model struct {
	conn     *natsconn.Connection
	refusals *natsconn.Refusals
	now      func() time.Time
	look     chan struct{}
	objects  objects

	mu     sync.Mutex
	looked time.Time
	// changed is closed and replaced after each reading.
	changed chan struct{}
	// reading is the last one; its time is zero if nobody has looked for a while.
	reading
	err      error
	overview overview.Overview
	samples  []Sample
	passed   passed
	// ahead is how far this clock is ahead of the server's.
	ahead time.Duration
}

// reading is the content of the streams, and of the cluster, at a time.
type reading struct {
	asOf time.Time
	// keys are sorted by namespace, name and key, timers by time.
	keys   []keys.Key
	timers []operate.Timer
	// recent has the failures of the last hour, newest first. failures counts all.
	recent   []Failure
	failures map[operate.ReasonHost]uint64
	unread   int
	missing  map[Part]error
}

// Part of a reading.
type Part string

// The parts.
const (
	Wants    Part = "wants"
	Timers   Part = "timers"
	Failures Part = "failures"
)

// Failure of the last hour.
type Failure struct {
	ID           uint64
	Reason, Host string
	Key          pipeline.Key

	at time.Time
}

// Sample of the backlogs.
type Sample struct {
	// Requests and Results include messages in flight.
	Requests, Results uint64
}

// objects are the ConfigMaps of the cluster, as of a time. Only the goroutine of Run uses them.
type objects struct {
	from *cluster.Reader
	last keys.Objects
	next time.Time
}

// get returns the objects of the last good reading, or nil if there was none. It reads at most every
// objectsEvery.
func (o *objects) get(ctx context.Context) keys.Objects {
	began := time.Now()
	if o.from == nil || began.Before(o.next) {
		return o.last
	}
	if read, err := o.from.Objects(ctx, "", ""); err == nil { // never read, a key is not "ok" but "fetched"
		o.last = read
	}
	o.next = time.Now().Add(max(objectsEvery, readPause*time.Since(began)))
	return o.last
}

// New returns a model of a connection, on which NATS refuses the refusals. A nil cluster is not read.
func New(
	conn *natsconn.Connection, refusals *natsconn.Refusals, from *cluster.Reader, now func() time.Time,
) *Model {
	return &Model{
		objects: objects{from: from}, conn: conn, refusals: refusals, now: now, look: make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
}

// Run reads while a page is open, until ctx ends.
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

// Touch notes that a page is open.
func (m *Model) Touch() { m.touch() }

// Look notes that a page is open, and waits for the first reading, or the end of ctx.
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
	if m.now().Sub(m.looked) > watchedFor {
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
	return m.now().Sub(m.looked) <= watchedFor
}

// follow works until no page is open.
func (m *Model) follow(ctx context.Context) {
	messages := make(chan *nats.Msg, 1024)
	for _, subject := range traffic.Subjects() {
		if subject == pipeline.KindContent.All() {
			continue // it has the bodies
		}
		if sub, err := m.conn.Conn.ChanSubscribe(subject, messages); err == nil {
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	read, poll := time.NewTimer(0), time.NewTicker(PollEvery)
	defer read.Stop()
	defer poll.Stop()
	if m.conn.Conn.IsConnected() {
		m.Poll(ctx)
	}
	for m.watched() {
		select {
		case <-ctx.Done():
			return
		case msg := <-messages:
			m.take(msg)
		case <-poll.C:
			if m.conn.Conn.IsConnected() {
				m.Poll(ctx)
			}
		case <-read.C:
			began := time.Now()
			if m.conn.Conn.IsConnected() {
				m.read(ctx)
			}
			read.Reset(max(readEvery, readPause*time.Since(began)))
		}
	}
}

// read reads all parts. A missing stream or permission leaves out its part.
func (m *Model) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r, err := m.readAll(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = err; err == nil {
		m.reading = r
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Model) readAll(ctx context.Context) (reading, error) {
	r := reading{asOf: m.now(), missing: map[Part]error{}, failures: map[operate.ReasonHost]uint64{}}
	var unread readable.Unread
	var timers keys.Timers
	from := keys.Reader{Client: m.conn.Client, Unread: &unread, Now: r.asOf, Objects: m.objects.get(ctx)}
	for _, part := range []struct {
		name   Part
		stream string
		read   func(context.Context) error
	}{
		{Timers, pipeline.Requests, func(ctx context.Context) (err error) {
			timers, err = from.Timers(ctx)
			r.timers = timers.Sorted()
			return err
		}},
		{Wants, pipeline.Requests, func(ctx context.Context) (err error) {
			handled := uint64(0)
			if fetchers, err := m.conn.Client.Fetchers(ctx); err == nil {
				handled = fetchers.AckFloor.Stream
			}
			r.keys, err = from.Keys(ctx, timers, handled)
			return err
		}},
		{Failures, pipeline.Failures, func(ctx context.Context) error { return r.readFailures(ctx, m.conn.Client, &unread) }},
	} {
		limited, end := m.refusals.CancelOnDenied(ctx, part.stream)
		err := part.read(limited)
		if refused := (*natsconn.PermissionError)(nil); err != nil && errors.As(context.Cause(limited), &refused) {
			err = refused
		}
		end()
		switch {
		case err == nil:
		case errors.As(err, new(*natsconn.PermissionError)), errors.Is(err, jetstream.ErrStreamNotFound):
			if r.missing[part.name] = err; len(r.missing) == 3 {
				return r, err
			}
		default:
			return r, err
		}
	}
	slices.SortFunc(r.keys, func(a, b keys.Key) int { return keys.Compare(a.Key, b.Key) })
	r.unread, _ = unread.Count()
	return r, nil
}

func (r *reading) readFailures(ctx context.Context, client *operate.Client, unread *readable.Unread) (err error) {
	if r.failures, err = client.CountDeadLetters(ctx, operate.DeadLetterFilter{}); err != nil {
		return err
	}
	lastHour := operate.DeadLetterFilter{Since: r.asOf.Add(-time.Hour)}
	for f, err := range readable.Only(unread, client.DeadLetters(ctx, lastHour)) {
		if err != nil {
			return err
		}
		r.recent = append(r.recent, Failure{ID: f.ID, Reason: f.Reason, Host: f.Host, Key: f.Key, at: f.At})
	}
	return nil
}

// Poll reads the state of the consumers.
func (m *Model) Poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, PollEvery)
	defer cancel()
	var read overview.Overview
	began := m.now()
	err := read.ReadConsumers(ctx, m.conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = err; err != nil {
		return
	}
	sample := Sample{}
	for _, c := range read.Consumers {
		n := c.Backlog + uint64(max(c.InFlight, 0))
		if c.Name == pipeline.FetcherConsumer {
			sample.Requests = n
		} else {
			sample.Results = n
		}
	}
	m.overview, m.ahead = read, ahead(began, m.now(), read.Clock)
	if m.samples = append(m.samples, sample); len(m.samples) > SampleCount {
		m.samples = m.samples[1:]
	}
}

// ahead returns how far a clock that went from began to ended is ahead of the time at; 0: by less
// than doctor.WrongClock.
func ahead(began, ended, at time.Time) time.Duration {
	switch {
	case began.Sub(at) > doctor.WrongClock:
		return began.Sub(at)
	case at.Sub(ended) > doctor.WrongClock:
		return ended.Sub(at)
	}
	return 0
}

const (
	// passedEach is the maximum number of described messages per second.
	passedEach = 20
	// passedMost is the minimum number of stored messages.
	passedMost = 60
)

// passed has the latest messages.
type passed struct {
	second  int64
	taken   int
	entries []traffic.Message
	// ever counts all entries.
	ever uint64
}

func (m *Model) take(msg *nats.Msg) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := &m.passed, m.now()
	if p.second != now.Unix() {
		p.second, p.taken = now.Unix(), 0
	}
	if p.taken++; p.taken > passedEach {
		return
	}
	entry, ok := traffic.Describe(msg, now)
	if !ok {
		return
	}
	p.ever++
	if p.entries = append(p.entries, entry); len(p.entries) > 2*passedMost {
		p.entries = slices.Clone(p.entries[passedMost:])
	}
}
