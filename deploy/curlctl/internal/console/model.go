package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// readEvery is the minimum interval between readings. A long reading is followed by a pause of readPause times
	// its duration.
	readEvery      = time.Second
	readPause      = 9
	streamsTimeout = 30 * time.Second
	// objectsEvery is the minimum interval between readings of Kubernetes.
	objectsEvery = 10 * time.Second
	// pollEvery is the interval between polls of the consumers.
	pollEvery = 5 * time.Second
	// watchedFor is how long the model keeps reading after the last page was closed.
	watchedFor = time.Minute
)

// model is safe for concurrent use.
type model struct {
	conn    *operate.Connection
	now     func() time.Time
	look    chan struct{}
	objects objects

	mu     sync.Mutex
	looked time.Time
	// changed is closed and replaced after each reading.
	changed chan struct{}
	last    reading
}

// reading is the state of the pipeline at a time. It is immutable.
type reading struct {
	// State has the consumers and the pause, but no numbers of keys, timers and failures.
	State keys.Overview
	// Streams has keys sorted by namespace, name and key.
	Streams keys.Streams
	// AsOf is the time of Streams (zero: nothing was read, or no page was open for a while).
	AsOf time.Time
	// Err is the error of the last attempt to read the streams.
	Err error

	// seen is when a page received the reading.
	seen time.Time
}

// objects caches the ConfigMaps of the cluster. Only the goroutine of Run uses it.
type objects struct {
	from *keys.Cluster
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

// newModel returns a model. If from is nil, it does not read the cluster.
func newModel(conn *operate.Connection, from *keys.Cluster, now func() time.Time) *model {
	return &model{
		objects: objects{from: from}, conn: conn, now: now, look: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// Run reads while a page is open, until ctx ends.
func (m *model) Run(ctx context.Context) {
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
func (m *model) Last() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.last
	r.seen = m.now()
	return r
}

// Look notes that a page is open, waits for the first reading or the end of ctx, and returns the last reading.
func (m *model) Look(ctx context.Context) reading {
	if ready, changed := m.touch(); !ready {
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return m.Last()
}

func (m *model) touch() (ready bool, changed chan struct{}) {
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

func (m *model) watched() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now().Sub(m.looked) <= watchedFor
}

// follow reads and polls until no page is open.
func (m *model) follow(ctx context.Context) {
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
func (m *model) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, streamsTimeout)
	defer cancel()
	ctx, end := m.conn.Refusals.CancelOnDenied(ctx)
	defer end()
	now := m.now()
	r, err := keys.ReadStreams(ctx, m.conn.Client.Counting(), m.objects.get(ctx), now)
	slices.SortFunc(r.Keys, func(a, b keys.Key) int { return keys.Compare(a.Key, b.Key) })
	refused := new(operate.PermissionError)
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
		m.last.AsOf, m.last.Streams = time.Time{}, keys.Streams{}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// Poll reads the state of the consumers.
func (m *model) Poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	var read keys.Overview
	if read.ReadConsumers(ctx, m.conn) != nil {
		return // reading the streams reports the error
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last.State = read
}

// Numbers returns the overview.
func (r *reading) Numbers() keys.Overview {
	n := r.State
	n.Now, n.Groups = keys.Count(r.Streams.Keys), keys.Groups(r.Streams.Keys)
	n.Failures = operate.Total(r.Streams.Failures)
	for _, t := range r.Streams.Timers {
		if fired := t.At.Before(r.seen) && !t.At.Before(r.AsOf); !fired {
			n.Timers.Add(t.At, r.seen)
		}
	}
	for _, f := range r.Streams.Recent {
		if r.seen.Sub(f.At) < time.Hour {
			n.LastHour++
		}
	}
	return n
}

func (r *reading) find(key pipeline.Key) (int, bool) {
	compare := func(a keys.Key, b pipeline.Key) int { return keys.Compare(a.Key, b) }
	return slices.BinarySearchFunc(r.Streams.Keys, key, compare)
}

// Key returns a wanted key, or nil.
func (r *reading) Key(key pipeline.Key) *keys.Key {
	if at, found := r.find(key); found {
		return &r.Streams.Keys[at]
	}
	return nil
}

// keyFilter selects keys. Empty fields select all.
type keyFilter struct {
	Namespace, Name, Host string
	// Failing excludes good keys.
	Failing bool
}

// Wants returns at most n selected keys after the cursor, and the number of all selected keys.
func (r *reading) Wants(f keyFilter, after pipeline.Key, n int) (rows []keys.Key, all int) {
	for _, k := range r.Streams.Keys {
		if f.Namespace != "" && k.Namespace != f.Namespace || f.Name != "" && k.Name != f.Name ||
			f.Host != "" && !k.HostIs(f.Host) || f.Failing && k.Condition.Good() {
			continue
		}
		all++
		if len(rows) < n && keys.Compare(k.Key, after) > 0 {
			rows = append(rows, k)
		}
	}
	return rows, all
}

// hostCounts has the counts of one host.
type hostCounts struct {
	// Name may be an address.
	Name string
	// Wanted counts all keys. Failing, Pending and Stale count keys by state. Failing includes refused and contested keys.
	Wanted, Failing, Pending, Stale int
	// Reasons counts failing keys.
	Reasons map[string]int
	// Next is the next attempt of a failing key (zero: there is none).
	Next time.Time
	// Kept counts the failures.
	Kept uint64
}

// Hosts returns the hosts, most failing keys first.
func (r *reading) Hosts() []hostCounts {
	hosts := map[string]hostCounts{}
	for _, k := range r.Streams.Keys {
		h := hosts[k.Host]
		h.Wanted++
		switch c := k.Condition; c.State {
		case keystate.Failing, keystate.Refused, keystate.Contested:
			h.Failing++
			if h.Reasons == nil {
				h.Reasons = map[string]int{}
			}
			h.Reasons[c.Reason]++
			if !c.Next.IsZero() && (h.Next.IsZero() || c.Next.Before(h.Next)) {
				h.Next = c.Next
			}
		case keystate.Pending:
			h.Pending++
		case keystate.Stale:
			h.Stale++
		case keystate.OK, keystate.Ignored:
		}
		hosts[k.Host] = h
	}
	for group, n := range r.Streams.Failures {
		h := hosts[group.Host]
		h.Kept += n
		hosts[group.Host] = h
	}
	all := make([]hostCounts, 0, len(hosts))
	for name, h := range hosts {
		h.Name = name
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b hostCounts) int {
		return cmp.Or(cmp.Compare(b.Failing, a.Failing), cmp.Compare(b.Stale, a.Stale), cmp.Compare(b.Kept, a.Kept),
			cmp.Compare(b.Wanted, a.Wanted), strings.Compare(a.Name, b.Name))
	})
	return all
}
