package model

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Numbers are the pipeline at a glance, of one namespace or of all.
type Numbers struct {
	overview.Overview

	// AsOf is the time of the last reading (zero: there was none).
	AsOf time.Time
	// Err is the error of the last reading.
	Err error
}

// Numbers returns the pipeline at a glance. An empty namespace means all. Failures is 0 for a single
// namespace.
func (m *Model) Numbers(namespace string) Numbers {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	n := Numbers{Overview: m.overview, AsOf: m.asOf, Err: m.err}
	n.Now, n.Groups = keys.Count(m.within(namespace)), keys.Groups(m.within(namespace))
	n.Failures, n.LastHour, n.Timers = 0, 0, overview.Timers{}
	for t := range m.pending(namespace) {
		n.Timers.Add(t.At, now)
	}
	if namespace == "" {
		n.Failures = operate.Total(m.streams.Failures)
	}
	for _, f := range m.streams.Recent {
		if now.Sub(f.At) < time.Hour && (namespace == "" || f.Key.Namespace == namespace) {
			n.LastHour++
		}
	}
	return n
}

// within returns the keys of a namespace (empty: all).
func (m *Model) within(namespace string) []keys.Key {
	if namespace == "" {
		return m.streams.Keys
	}
	from := m.after(pipeline.Key{Namespace: namespace})
	n := 0
	for n < len(from) && from[n].Namespace == namespace {
		n++
	}
	return from[:n]
}

func (m *Model) find(key pipeline.Key) (int, bool) {
	compare := func(a keys.Key, b pipeline.Key) int { return keys.Compare(a.Key, b) }
	return slices.BinarySearchFunc(m.streams.Keys, key, compare)
}

// after returns the keys that sort after one.
func (m *Model) after(key pipeline.Key) []keys.Key {
	at, found := m.find(key)
	if found {
		at++
	}
	return m.streams.Keys[at:]
}

// pending iterates the timers of a namespace that have not fired since the reading.
func (m *Model) pending(namespace string) iter.Seq[operate.Timer] {
	now := m.now()
	return func(yield func(operate.Timer) bool) {
		for _, t := range m.streams.Timers {
			fired := t.At.Before(now) && !t.At.Before(m.asOf)
			if !fired && (namespace == "" || t.Key.Namespace == namespace) && !yield(t) {
				return
			}
		}
	}
}

// Brief is on every page.
type Brief struct {
	// Paused: fetching is paused, until Resumes if that is set.
	Paused  bool
	Resumes *time.Time
	// AsOf and Err are as in Numbers.
	AsOf time.Time
	Err  error
}

// Brief returns the state that is on every page.
func (m *Model) Brief() Brief {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Brief{Paused: m.overview.Paused, Resumes: m.overview.Resumes, AsOf: m.asOf, Err: m.err}
}

// FailedSince counts matching failures with a greater ID.
func (m *Model) FailedSince(id uint64, match func(operate.DeadLetter) bool) (count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.streams.Recent {
		if f.ID > id && match(f) {
			count++
		}
	}
	return count
}

// Failures counts all failures by reason and host.
func (m *Model) Failures() map[operate.ReasonHost]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.streams.Failures)
}

// Key returns a wanted key (false: it is not wanted).
func (m *Model) Key(key pipeline.Key) (keys.Key, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, found := m.find(key)
	if !found {
		return keys.Key{}, false
	}
	return m.streams.Keys[at], true
}

// Filter selects keys. Empty fields select all.
type Filter struct {
	Namespace, Name, Host string
	// Failing leaves good keys out.
	Failing bool
}

// Wants returns at most n selected keys after one, and the number of all selected keys.
func (m *Model) Wants(f Filter, after pipeline.Key, n int) (rows []keys.Key, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.within(f.Namespace) {
		if f.Name != "" && k.Name != f.Name || f.Host != "" && !k.HostIs(f.Host) || f.Failing && k.Condition.Good() {
			continue
		}
		all++
		if len(rows) < n && keys.Compare(k.Key, after) > 0 {
			rows = append(rows, k)
		}
	}
	return rows, all
}

// Host has the counts of one host.
type Host struct {
	// Name may be an address.
	Name string
	// Wanted, Failing, Pending and Stale count keys by state; Failing has the refused ones, too.
	Wanted, Failing, Pending, Stale int
	// Reasons counts failing keys.
	Reasons map[string]int
	// Next is the next attempt of a failing key (zero: there is none).
	Next time.Time
	// Kept counts its failures in all namespaces.
	Kept uint64
}

// Hosts returns the hosts of a namespace, or of all, most failing keys first.
func (m *Model) Hosts(namespace string) []Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	hosts := map[string]Host{}
	for _, k := range m.within(namespace) {
		h := hosts[k.Host]
		h.Wanted++
		switch c := k.Condition; c.State {
		case keystate.Failing, keystate.Refused:
			h.Failing++
			if h.Reasons == nil {
				h.Reasons = map[string]int{}
			}
			h.Reasons[c.Reason]++
			if h.Next.IsZero() || c.Next.Before(h.Next) {
				h.Next = c.Next
			}
		case keystate.Pending:
			h.Pending++
		case keystate.Stale:
			h.Stale++
		case keystate.OK, keystate.Fetched, keystate.Ignored:
		}
		hosts[k.Host] = h
	}
	if namespace == "" {
		for group, n := range m.streams.Failures {
			h := hosts[group.Host]
			h.Kept += n
			hosts[group.Host] = h
		}
	}
	all := make([]Host, 0, len(hosts))
	for name, h := range hosts {
		h.Name = name
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Host) int {
		return cmp.Or(cmp.Compare(b.Failing, a.Failing), cmp.Compare(b.Stale, a.Stale), cmp.Compare(b.Kept, a.Kept),
			cmp.Compare(b.Wanted, a.Wanted), strings.Compare(a.Name, b.Name))
	})
	return all
}
