// Package model has the data of the console: wanted keys, timers, failures and consumers. While a page is open,
// it rereads the streams, and spends at most a tenth of the time on it.
package model

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
)

const (
	// readEvery is the minimum interval between readings. A long reading is followed by a pause of readPause times
	// its duration.
	readEvery   = time.Second
	readPause   = 9
	readTimeout = 30 * time.Second
	// objectsEvery is the minimum interval between readings of Kubernetes.
	objectsEvery = 10 * time.Second
	// pollEvery is the interval between polls of the consumers.
	pollEvery = 5 * time.Second
	// watchedFor is how long the model keeps reading after the last page was closed.
	watchedFor = time.Minute
)

// Model is safe for concurrent use.
type Model struct {
	conn    *natsconn.Connection
	now     func() time.Time
	look    chan struct{}
	objects objects

	mu     sync.Mutex
	looked time.Time
	// changed is closed and replaced after each reading.
	changed chan struct{}
	last    Reading
}

// Reading is the state of the pipeline at a time. It is immutable.
type Reading struct {
	// State has the consumers and the pause, but no numbers of keys, timers and failures.
	State overview.Overview
	// Streams has keys sorted by namespace, name and key.
	Streams overview.Streams
	// AsOf is the time of Streams (zero: nothing was read, or no page was open for a while).
	AsOf time.Time
	// Err is the error of the last attempt to read the streams.
	Err error

	// seen is when a page received the reading.
	seen time.Time
}

// objects caches the ConfigMaps of the cluster. Only the goroutine of Run uses it.
type objects struct {
	from *cluster.Reader
	last keys.Objects
	next time.Time
}

// get returns the objects of the last successful reading, or nil. It reads at most every objectsEvery.
func (o *objects) get(ctx context.Context) keys.Objects {
	began := time.Now()
	if o.from == nil || began.Before(o.next) {
		return o.last
	}
	if read, err := o.from.Objects(ctx, "", ""); err == nil { // without any reading, ok keys have the reason NotRead
		o.last = read
	}
	o.next = time.Now().Add(max(objectsEvery, readPause*time.Since(began)))
	return o.last
}

// New returns a model. If from is nil, it does not read the cluster.
func New(conn *natsconn.Connection, from *cluster.Reader, now func() time.Time) *Model {
	return &Model{
		objects: objects{from: from}, conn: conn, now: now, look: make(chan struct{}, 1), changed: make(chan struct{}),
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

// Last returns the last reading.
func (m *Model) Last() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.last
	r.seen = m.now()
	return r
}

// Look notes that a page is open, waits for the first reading or the end of ctx, and returns the last reading.
func (m *Model) Look(ctx context.Context) Reading {
	if ready, changed := m.touch(); !ready {
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return m.Last()
}

func (m *Model) touch() (ready bool, changed chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now().Sub(m.looked) > watchedFor {
		m.last.AsOf = time.Time{}
	}
	m.looked = m.now()
	select {
	case m.look <- struct{}{}:
	default:
	}
	return !m.last.AsOf.IsZero(), m.changed
}

func (m *Model) watched() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now().Sub(m.looked) <= watchedFor
}

// follow reads and polls until no page is open.
func (m *Model) follow(ctx context.Context) {
	read, poll := time.NewTimer(0), time.NewTicker(pollEvery)
	defer read.Stop()
	defer poll.Stop()
	if m.conn.Conn.IsConnected() {
		m.Poll(ctx)
	}
	for m.watched() {
		select {
		case <-ctx.Done():
			return
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

// read reads the streams. On a temporary error it keeps the previous reading.
func (m *Model) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ctx, end := m.conn.Refusals.CancelOnDenied(ctx)
	defer end()
	now := m.now()
	r, err := overview.ReadStreams(ctx, m.conn.Client.Counting(), m.objects.get(ctx), now)
	slices.SortFunc(r.Keys, func(a, b keys.Key) int { return keys.Compare(a.Key, b.Key) })
	refused := new(natsconn.PermissionError)
	if err != nil && errors.As(context.Cause(ctx), &refused) {
		err = refused
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last.Err = err
	switch {
	case err == nil:
		m.last.AsOf, m.last.Streams = now, r
	case errors.As(err, &refused), errors.Is(err, jetstream.ErrStreamNotFound):
		m.last.AsOf, m.last.Streams = time.Time{}, overview.Streams{}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// Poll reads the state of the consumers.
func (m *Model) Poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	var read overview.Overview
	if read.ReadConsumers(ctx, m.conn) != nil {
		return // reading the streams reports the error
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last.State = read
}
