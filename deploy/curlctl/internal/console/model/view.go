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
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const minutes = 60 // of an hour

// Numbers are the pipeline at a glance, of one namespace or of all.
type Numbers struct {
	overview.Overview

	// AsOf is the time of the last reading (zero: there was none).
	AsOf time.Time
	// Err is the error of the last reading.
	Err error
	// Unread counts unreadable messages.
	Unread int
	// Missing are the parts that could not be read.
	Missing map[Part]error
	// Minutes counts the failures of the last hour, oldest minute first.
	Minutes [minutes]int
	// Samples are the latest backlogs, oldest first.
	Samples []Sample
}

// Numbers returns the pipeline at a glance. An empty namespace means all. Failures is 0 for a single
// namespace.
func (m *Model) Numbers(namespace string) Numbers {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	n := Numbers{
		Overview: m.overview, AsOf: m.asOf, Err: m.err, Unread: m.unread, Missing: m.missing,
		Samples: slices.Clone(m.samples),
	}
	n.Now, n.Groups = keys.Count(m.within(namespace)), keys.Groups(m.within(namespace))
	n.Failures, n.LastHour, n.Timers = 0, 0, overview.Timers{}
	for t := range m.pending(namespace) {
		n.Timers.Add(t.At, now)
	}
	if namespace == "" {
		n.Failures = operate.Total(m.failures)
	}
	for _, f := range m.recent {
		minute := minutes - 1 - int(now.Sub(f.at)/time.Minute)
		if minute < 0 || namespace != "" && f.Key.Namespace != namespace {
			continue
		}
		n.LastHour++
		n.Minutes[min(minute, minutes-1)]++
	}
	return n
}

// within returns the keys of a namespace (empty: all).
func (m *Model) within(namespace string) []keys.Key {
	if namespace == "" {
		return m.keys
	}
	from := m.after(pipeline.Key{Namespace: namespace})
	n := 0
	for n < len(from) && from[n].Namespace == namespace {
		n++
	}
	return from[:n]
}

func (m *Model) find(key pipeline.Key) (int, bool) {
	return slices.BinarySearchFunc(m.keys, key, func(a keys.Key, b pipeline.Key) int { return keys.Compare(a.Key, b) })
}

// after returns the keys that sort after one.
func (m *Model) after(key pipeline.Key) []keys.Key {
	at, found := m.find(key)
	if found {
		at++
	}
	return m.keys[at:]
}

// pending iterates the timers of a namespace that have not fired since the reading.
func (m *Model) pending(namespace string) iter.Seq[operate.Timer] {
	now := m.now()
	return func(yield func(operate.Timer) bool) {
		for _, t := range m.timers {
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
	// Ahead is how far the clock of this machine is ahead of the server's (0: not noticeably).
	Ahead time.Duration
}

// Brief returns the state that is on every page.
func (m *Model) Brief() Brief {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Brief{Paused: m.overview.Paused, Resumes: m.overview.Resumes, AsOf: m.asOf, Err: m.err, Ahead: m.ahead}
}

// Missing returns why a part could not be read, or nil.
func (m *Model) Missing(part Part) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missing[part]
}

// Passing returns the messages of a namespace, or of all, after the first n ever, and the new n.
func (m *Model) Passing(namespace string, n uint64) ([]traffic.Message, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.passed
	if n > p.ever { // of an earlier process
		n = 0
	}
	var entries []traffic.Message
	for _, e := range p.entries[len(p.entries)-int(min(p.ever-n, uint64(len(p.entries)))):] {
		if namespace == "" || e.Namespace == namespace {
			entries = append(entries, e)
		}
	}
	return entries, p.ever
}

// FailedSince counts matching failures with a greater ID.
func (m *Model) FailedSince(id uint64, match func(Failure) bool) (count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.recent {
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
	return maps.Clone(m.failures)
}

// Key returns a wanted key (false: it is not wanted).
func (m *Model) Key(key pipeline.Key) (keys.Key, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, found := m.find(key)
	if !found {
		return keys.Key{}, false
	}
	return m.keys[at], true
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

// Schedule returns at most n timers of a namespace, or of all, after a time and key, and counts the
// timers of each minute of the next hour.
func (m *Model) Schedule(
	namespace string, at time.Time, key pipeline.Key, n int,
) (rows []operate.Timer, counts [minutes]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for t := range m.pending(namespace) {
		if later := cmp.Or(t.At.Compare(at), keys.Compare(t.Key, key)); later > 0 && len(rows) < n {
			rows = append(rows, t)
		}
		if minute := t.At.Sub(now) / time.Minute; minute >= 0 && minute < minutes {
			counts[minute]++
		}
	}
	return rows, counts
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
		for group, n := range m.failures {
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

// Namespaces returns the namespaces with wanted keys.
func (m *Model) Namespaces() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.keys {
		if len(all) == 0 || all[len(all)-1] != k.Namespace {
			all = append(all, k.Namespace)
		}
	}
	return all
}
