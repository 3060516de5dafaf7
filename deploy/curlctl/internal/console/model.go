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
	// its duration, so that reading takes at most a tenth of the time.
	readEvery      = time.Second
	readPause      = 9
	streamsTimeout = 30 * time.Second
	// objectsEvery is the minimum interval between readings of Kubernetes.
	objectsEvery = 10 * time.Second
	// keptFor is how long a page shows a reading at most, after nobody has looked.
	keptFor = time.Minute
)

// model is safe for concurrent use. It reads only when a page is opened, in the background of that page.
type model struct {
	conn       *operate.Connection
	kubernetes *keys.Cluster
	now        func() time.Time

	mu sync.Mutex
	// reading is closed at the end of the current reading (nil: there is none). next is the earliest time of another.
	reading chan struct{}
	next    time.Time
	last    reading
	// objects has the ConfigMaps of the last successful read of Kubernetes (nil: the console does not read it).
	objects     keys.Objects
	nextObjects time.Time
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

// Last returns the last reading.
func (m *model) Last() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.last
	r.seen = m.now()
	return r
}

// Look starts a reading if it is time for one, until ended ends. It returns the last reading, and waits for the first
// one or for the end of ctx.
func (m *model) Look(ctx, ended context.Context) reading {
	m.mu.Lock()
	if m.now().Sub(m.last.AsOf) > keptFor {
		m.last.AsOf = time.Time{}
	}
	known := !m.last.AsOf.IsZero()
	if m.reading == nil && (!known || time.Now().After(m.next)) && m.conn.Conn.IsConnected() {
		m.reading = make(chan struct{})
		go m.read(ended)
	}
	wait := m.reading
	m.mu.Unlock()
	if wait != nil && !known {
		select {
		case <-ctx.Done():
		case <-wait:
		}
	}
	return m.Last()
}

// read reads the streams and the objects. On a temporary error it keeps the previous reading.
func (m *model) read(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, streamsTimeout)
	defer cancel()
	ctx, end := m.conn.Refusals.CancelOnDenied(ctx)
	defer end()
	now, state := m.now(), keys.Overview{}
	noState := state.ReadConsumers(ctx, m.conn)
	m.readObjects(ctx, began)
	r, err := keys.ReadStreams(ctx, m.conn.Client.Counting(), m.objects, now)
	slices.SortFunc(r.Keys, func(a, b keys.Key) int { return keys.Compare(a.Key, b.Key) })
	refused := new(operate.PermissionError)
	if err != nil && errors.As(context.Cause(ctx), &refused) {
		err = refused
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if noState == nil { // reading the streams reports the error
		m.last.State = state
	}
	m.last.Err = err
	switch {
	case err == nil:
		m.last.AsOf, m.last.Streams = now, r
	case errors.As(err, &refused), errors.Is(err, jetstream.ErrStreamNotFound):
		m.last.AsOf, m.last.Streams = time.Time{}, keys.Streams{}
	}
	m.next = time.Now().Add(max(readEvery, readPause*time.Since(began)))
	close(m.reading)
	m.reading = nil
}

// readObjects reads Kubernetes if it is time for that. Only one reading runs at a time.
func (m *model) readObjects(ctx context.Context, began time.Time) {
	if m.kubernetes == nil || began.Before(m.nextObjects) {
		return
	}
	if read, err := m.kubernetes.Objects(ctx, "", ""); err == nil { // without any reading, ok keys have the reason NotRead
		m.objects = read
	}
	m.nextObjects = time.Now().Add(max(objectsEvery, readPause*time.Since(began)))
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

// hostCounts has the keys of one host.
type hostCounts struct {
	// Name may be an address.
	Name string
	keys.Counts
	// Reasons and Namespaces count the failing keys. Next is their next attempt (zero: there is none).
	Reasons, Namespaces keys.Tally
	Next                time.Time
	// Kept counts the failures.
	Kept uint64
}

// Pending and Stale count keys by state.
func (h hostCounts) Pending() int { return h.Counts[keystate.Pending] }
func (h hostCounts) Stale() int   { return h.Counts[keystate.Stale] }

// Hosts returns the hosts, most failing keys first.
func (r *reading) Hosts() []hostCounts {
	hosts := map[string]*hostCounts{}
	host := func(name string) *hostCounts {
		if hosts[name] == nil {
			hosts[name] = &hostCounts{Name: name, Counts: keys.Counts{}, Reasons: keys.Tally{}, Namespaces: keys.Tally{}}
		}
		return hosts[name]
	}
	for _, k := range r.Streams.Keys {
		h, c := host(k.Host), k.Condition
		before := h.Failing()
		if c.State != keystate.Ignored {
			h.Counts[c.State]++
		}
		if h.Failing() == before {
			continue
		}
		h.Reasons[c.Reason]++
		h.Namespaces[k.Namespace]++
		if !c.Next.IsZero() && (h.Next.IsZero() || c.Next.Before(h.Next)) {
			h.Next = c.Next
		}
	}
	for group, n := range r.Streams.Failures {
		host(group.Host).Kept += n
	}
	all := make([]hostCounts, 0, len(hosts))
	for _, h := range hosts {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b hostCounts) int {
		return cmp.Or(cmp.Compare(b.Failing(), a.Failing()), cmp.Compare(b.Stale(), a.Stale()), cmp.Compare(b.Kept, a.Kept),
			cmp.Compare(b.Keys(), a.Keys()), strings.Compare(a.Name, b.Name))
	})
	return all
}
