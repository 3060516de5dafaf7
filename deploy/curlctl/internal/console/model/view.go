package model

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Numbers are the pipeline at a glance, of one namespace or of all.
type Numbers struct {
	overview.Overview

	// AsOf is when the streams were read; zero: they have not been.
	AsOf time.Time
	// Err is why the last reading failed; nil: it did not.
	Err error
	// Unread counts messages that cannot be read.
	Unread int
	// Missing are the parts that could not be read, and why.
	Missing map[Part]error
	// Unfollowed is why what passes is not counted before the next reading; nil: it is.
	Unfollowed error
	// Minutes are the failures of the last hour, the oldest minute first.
	Minutes [minutes]int
	// Samples are the backlogs of late, the oldest first.
	Samples []Sample
}

// Numbers returns the pipeline at a glance; of all namespaces where it is empty.
// Failures that are kept are counted for all namespaces only. It goes through the
// timers of the next minute, and no others.
func (m *Model) Numbers(namespace string) Numbers {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.fresh()
	s := m.counts(namespace)
	n := Numbers{
		Overview: m.overview, AsOf: m.asOf, Err: m.err, Unread: m.unread, Missing: m.missing, Unfollowed: m.unfollowed, Minutes: s.failed.of(now),
		Samples: slices.Clone(m.samples),
	}
	n.Wants, n.Failures, n.LastHour, n.Timers = s.wants, 0, 0, overview.Timers{}
	m.timers(s, 0, func(r *record) bool {
		at := time.UnixMilli(r.timer.at)
		n.Timers.See(at, now)
		return at.Before(now.Add(time.Minute))
	})
	n.Timers.Pending = s.timers
	if s == m.all {
		n.Failures = int(m.stored)
	}
	for _, count := range n.Minutes {
		n.LastHour += count
	}
	return n
}

// fresh returns the time. Timers that have fired before are no more, but for those of
// the last second.
func (m *Model) fresh() time.Time {
	now := m.now()
	if now.Sub(m.expired).Abs() >= time.Second {
		m.expire(now)
		m.expired = now
	}
	return now
}

// Brief is what every page shows of the pipeline.
type Brief struct {
	// Paused: nothing is fetched; Resumes is when that ends, nil: not by itself.
	Paused  bool
	Resumes *time.Time
	// AsOf and Err are those of Numbers.
	AsOf time.Time
	Err  error
	// Ahead is how far the clock of this machine is ahead of the server's; 0: by so
	// little that it does not matter.
	Ahead time.Duration
}

// Brief returns it without counting.
func (m *Model) Brief() Brief {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Brief{Paused: m.overview.Paused, Resumes: m.overview.Resumes, AsOf: m.asOf, Err: m.err, Ahead: m.ahead}
}

// Missing returns why a part could not be read; nil: it could.
func (m *Model) Missing(part Part) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missing[part]
}

// Passing returns what has been described after the first n ever, of one
// namespace or of all, and the new n.
func (m *Model) Passing(namespace string, n uint64) ([]traffic.Message, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.passed
	var entries []traffic.Message
	for _, e := range last(p.entries, p.numbers, n) {
		if namespace == "" || e.Namespace == namespace {
			entries = append(entries, e)
		}
	}
	return entries, p.numbers
}

// FailedSince counts the failures after the first n ever that match, and returns the
// new n.
func (m *Model) FailedSince(n uint64, match func(Failure) bool) (count int, failed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.passed.since(n) {
		if match(f) {
			count++
		}
	}
	return count, m.passed.failed
}

// Failed returns how many failures have passed.
func (m *Model) Failed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.passed.failed
}

// Row is a key with its condition.
type Row struct {
	// Key that is wanted.
	Key pipeline.Key
	// UID of the ConfigMap, and the URL, which may hold secrets.
	UID, URL string
	// Refresh is the interval; 0: none.
	Refresh time.Duration
	// At is when it was wanted.
	At time.Time
	// Condition of the key.
	Condition condition.Condition
}

func (m *Model) row(r *record, now time.Time) Row {
	return Row{Key: r.key, UID: r.uid, URL: r.url, Refresh: r.refresh, At: time.UnixMilli(r.at), Condition: r.condition(m.handled, now)}
}

// Row returns a key; false: it is not wanted.
func (m *Model) Row(key pipeline.Key) (Row, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.fresh()
	r := m.find(key)
	if r == nil || !r.wanted {
		return Row{}, false
	}
	return m.row(r, now), true
}

// Object returns the keys of a ConfigMap, in order.
func (m *Model) Object(namespace, name string) (rows []Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.fresh()
	m.wants(pipeline.Key{Namespace: namespace, Name: name}, func(r *record) bool {
		if r.key.Namespace != namespace || r.key.Name != name {
			return false
		}
		rows = append(rows, m.row(r, now))
		return true
	})
	return rows
}

// wants calls each with what is wanted from a key on, in order, until it returns
// false.
func (m *Model) wants(from pipeline.Key, each func(*record) bool) {
	m.byKey.AscendGreaterOrEqual(&record{key: from}, func(r *record) bool { return !r.wanted || each(r) })
}

// Wants returns the first n keys after one, in order, that a namespace, name and
// host select, empty ones selecting all, and how many are selected without
// regard to where they begin. All are gone through for a name or address, and for a host
// that has less than a page of them.
func (m *Model) Wants(namespace, name, host string, after pipeline.Key, n int) (rows []Row, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.fresh()
	host = strings.ToLower(host)
	from, known := pipeline.Key{Namespace: namespace}, name == "" && !pipeline.IsAddress(host)
	if known && compareKeys(after, from) > 0 {
		from = after
	}
	m.wants(from, func(r *record) bool {
		if namespace != "" && r.key.Namespace != namespace {
			return false
		}
		if name != "" && r.key.Name != name || host != "" && !r.isOf(host) {
			return true
		}
		all++
		if len(rows) < n && compareKeys(r.key, after) > 0 {
			rows = append(rows, m.row(r, now))
		}
		return !known || len(rows) < n
	})
	switch s := m.counts(namespace); {
	case !known:
	case host == "":
		all = s.wants
	case s.hosts[host] == nil:
		all = 0
	default:
		all = s.hosts[host].wanted
	}
	return rows, all
}

// Scheduled is a timer that is pending.
type Scheduled struct {
	// At is when it fires.
	At time.Time
	// Key that it is of.
	Key pipeline.Key
	// Cause of the fetch.
	Cause v1.Cause
	// Attempts that have failed.
	Attempts uint32
}

// Schedule returns the first n timers after a time and key, the next to fire first,
// and how many fire in each minute of the next hour; of all namespaces where it is
// empty.
func (m *Model) Schedule(namespace string, at time.Time, key pipeline.Key, n int) (rows []Scheduled, counts [minutes]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.fresh()
	s, from := m.counts(namespace), at.UnixMilli()
	m.timers(s, from, func(r *record) bool {
		if r.timer.at > from || compareKeys(r.key, key) > 0 {
			rows = append(rows, Scheduled{At: time.UnixMilli(r.timer.at), Key: r.key, Cause: r.timer.cause, Attempts: r.timer.attempts})
		}
		return len(rows) < n
	})
	m.timers(s, now.UnixMilli(), func(r *record) bool {
		minute := (r.timer.at - now.UnixMilli()) / time.Minute.Milliseconds()
		if minute >= minutes {
			return false
		}
		counts[minute]++
		return true
	})
	return rows, counts
}

// timers calls each with the timers of a namespace from a time on, in order, until it
// returns false.
func (m *Model) timers(s *namespaceCounts, from int64, each func(*record) bool) {
	m.byTime.AscendGreaterOrEqual(&record{timer: &timer{at: from}}, func(r *record) bool {
		return s != m.all && s != r.counts || each(r)
	})
}

// Host is what is known of one host.
type Host struct {
	// Name of the host, as pipeline.HostOf has it.
	Name string
	// Wanted, Failing, Waiting and Stale count keys by condition. Those that became
	// stale since the streams were read count as they were then.
	Wanted, Failing, Waiting, Stale int
	// Reasons counts failing keys.
	Reasons map[string]int
	// Next is when the next attempt of a failing key is; zero: there is none.
	Next time.Time
	// Kept counts its failures that are kept, of all namespaces.
	Kept uint64
}

// Hosts returns the hosts of a namespace; empty: all; those with most failing
// keys first.
func (m *Model) Hosts(namespace string) []Host {
	all := m.hosts(namespace)
	slices.SortFunc(all, func(a, b Host) int {
		return cmp.Or(cmp.Compare(b.Failing, a.Failing), cmp.Compare(b.Stale, a.Stale), cmp.Compare(b.Kept, a.Kept), cmp.Compare(b.Wanted, a.Wanted), strings.Compare(a.Name, b.Name))
	})
	return all
}

func (m *Model) hosts(namespace string) []Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh()
	s := m.counts(namespace)
	all, at, failing := make([]Host, 0, len(s.hosts)), map[string]int{}, 0
	for name, t := range s.hosts {
		at[name] = len(all)
		all = append(all, Host{Name: name, Wanted: t.wanted, Failing: t.failing, Waiting: t.waiting, Stale: t.stale, Reasons: maps.Clone(t.reasons)})
		if t.failing > 0 {
			failing++
		}
	}
	m.timers(s, 0, func(r *record) bool {
		if h := at[r.host]; r.state == condition.Failing && all[h].Next.IsZero() {
			all[h].Next = time.UnixMilli(r.timer.at)
			failing--
		}
		return failing > 0
	})
	if s != m.all {
		return all
	}
	for rh, n := range m.failures {
		h, there := at[rh.Host]
		if !there {
			h = len(all)
			at[rh.Host], all = h, append(all, Host{Name: rh.Host})
		}
		all[h].Kept += n
	}
	return all
}

// Namespaces returns the namespaces that want something, in order.
func (m *Model) Namespaces() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.byNamespace {
		if s.wants > 0 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
