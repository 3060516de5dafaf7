package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/passing"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
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
	// Minutes are the failures of the last hour, the oldest minute first.
	Minutes [60]int
	// Samples are the backlogs of late, the oldest first.
	Samples []Sample
	// Passed counts all messages ever, Entries those that are described, and
	// Failed the failures.
	Passed, Entries, Failed uint64
}

// Numbers returns the pipeline at a glance; of all namespaces where it is empty.
// Failures that are kept are counted for all namespaces only.
func (m *Model) Numbers(namespace string) Numbers {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	s := &m.state
	n := Numbers{
		Overview: s.overview, AsOf: s.asOf, Err: s.err, Unread: s.unread, Missing: s.missing, Minutes: s.minutes.of(namespace, m.now()),
		Samples: slices.Clone(s.samples), Passed: s.passed.count, Entries: s.passed.numbers, Failed: s.passed.failed,
	}
	n.Wants, n.Failures, n.LastHour = 0, 0, 0
	for key := range s.wants {
		if namespace == "" || key.Namespace == namespace {
			n.Wants++
		}
	}
	n.Timers = overview.Timers{}
	for key, t := range s.timers {
		if namespace == "" || key.Namespace == namespace {
			n.Timers.See(t.At, m.now())
		}
	}
	if namespace == "" {
		for _, count := range s.failures {
			n.Failures += int(count)
		}
	}
	for _, count := range n.Minutes {
		n.LastHour += count
	}
	return n
}

// Brief is what every page shows of the pipeline.
type Brief struct {
	// Paused: nothing is fetched; Resumes is when that ends, nil: not by itself.
	Paused  bool
	Resumes *time.Time
	// AsOf and Err are those of Numbers.
	AsOf time.Time
	Err  error
}

// Brief returns it without counting.
func (m *Model) Brief() Brief {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Brief{Paused: m.state.overview.Paused, Resumes: m.state.overview.Resumes, AsOf: m.state.asOf, Err: m.state.err}
}

// Missing returns why a part could not be read; nil: it could.
func (m *Model) Missing(part Part) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.missing[part]
}

// Passing returns what has been described after the first n ever, of one
// namespace or of all, and the new n.
func (m *Model) Passing(namespace string, n uint64) ([]passing.Passing, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.state.passed
	var entries []passing.Passing
	for _, e := range since(p.entries, p.numbers, n) {
		if namespace == "" || e.Namespace == namespace {
			entries = append(entries, e)
		}
	}
	return entries, p.numbers
}

// FailedSince counts the failures after the first n ever that match.
func (m *Model) FailedSince(n uint64, match func(Failure) bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := 0
	for _, f := range since(m.state.passed.failures, m.state.passed.failed, n) {
		if match(f) {
			count++
		}
	}
	return count
}

// Row is a key with its condition.
type Row struct {
	// Key that is wanted.
	Key pipeline.Key
	// Want of the key.
	Want Want
	// Timer of the key; nil: there is none.
	Timer *operate.Timer
	// Condition of the key.
	Condition condition.Condition
}

// handled is up to where the fetchers have taken requests.
func (s *state) handled() uint64 {
	for _, c := range s.overview.Consumers {
		if c.Name == pipeline.FetcherConsumer {
			return c.Handled
		}
	}
	return 0
}

func (s *state) row(key pipeline.Key, w Want, now time.Time) Row {
	row := Row{Key: key, Want: w}
	if t, there := s.timers[key]; there {
		row.Timer = &t.Timer
		if w.Sequence == 0 {
			w.Sequence = t.Due.GetWantSequence()
		}
	}
	want := operate.Want{Key: key, Sequence: w.Sequence, At: w.At, Want: &v1.Want{Url: w.URL, Refresh: durationpb.New(w.Refresh)}}
	row.Condition = condition.Of(want, row.Timer, s.handled(), now)
	return row
}

// Rows calls each with every key of a namespace and name; empty: any. It must
// not call the model.
func (m *Model) Rows(namespace, name string, each func(Row)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	now := m.now()
	for key, w := range m.state.wants {
		if (namespace == "" || key.Namespace == namespace) && (name == "" || key.Name == name) {
			each(m.state.row(key, w, now))
		}
	}
}

// Wants returns the first n keys after one, in order, that a namespace, name and
// host select, empty ones selecting all, and how many are selected without
// regard to where they begin.
func (m *Model) Wants(namespace, name, host string, after pipeline.Key, n int) (rows []Row, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	var first []pipeline.Key
	for key, w := range m.state.wants {
		if namespace != "" && key.Namespace != namespace || name != "" && key.Name != name || host != "" && !pipeline.HostIs(w.URL, host) {
			continue
		}
		all++
		if compareKeys(key, after) <= 0 || len(first) == n && compareKeys(key, first[n-1]) >= 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(first, key, compareKeys)
		if first = slices.Insert(first, i, key); len(first) > n {
			first = first[:n]
		}
	}
	now := m.now()
	for _, key := range first {
		rows = append(rows, m.state.row(key, m.state.wants[key], now))
	}
	return rows, all
}

func compareKeys(a, b pipeline.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
}

// Row returns a key; false: it is not wanted.
func (m *Model) Row(key pipeline.Key) (Row, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, there := m.state.wants[key]
	if !there {
		return Row{}, false
	}
	return m.state.row(key, w, m.now()), true
}

// Timers returns the timers of a namespace; empty: all; the next to fire first.
func (m *Model) Timers(namespace string) []operate.Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	var all []operate.Timer
	for key, t := range m.state.timers {
		if namespace == "" || key.Namespace == namespace {
			all = append(all, t.Timer)
		}
	}
	slices.SortFunc(all, func(a, b operate.Timer) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Key.String(), b.Key.String()))
	})
	return all
}

// Host is what is known of one host.
type Host struct {
	// Name of the host, as pipeline.HostOf has it.
	Name string
	// Wanted, Failing, Waiting and Stale count keys by condition.
	Wanted, Failing, Waiting, Stale int
	// Retries counts pending timers of failing keys.
	Retries int
	// Reasons counts failing keys.
	Reasons map[string]int
	// Next is when the next attempt of a failing key is; zero: there is none.
	Next time.Time
	// Kept counts its failures that are kept, of all namespaces.
	Kept uint64
}

// hostsFor is how long hosts that were counted are used.
const hostsFor = time.Second

// counted are the hosts of a namespace at a time.
type counted struct {
	namespace string
	at        time.Time
	hosts     []Host
}

// Hosts returns the hosts of a namespace; empty: all; those with most failing
// keys first. They may be a second old, and must not be changed.
func (m *Model) Hosts(namespace string) []Host {
	m.mu.Lock()
	c := m.counted
	m.mu.Unlock()
	if c.namespace == namespace && m.now().Sub(c.at) < hostsFor {
		return c.hosts
	}
	c = counted{namespace: namespace, at: m.now(), hosts: m.countHosts(namespace)}
	m.mu.Lock()
	m.counted = c
	m.mu.Unlock()
	return c.hosts
}

func (m *Model) countHosts(namespace string) []Host {
	hosts := map[string]*Host{}
	host := func(name string) *Host {
		h := hosts[name]
		if h == nil {
			h = &Host{Name: name, Reasons: map[string]int{}}
			hosts[name] = h
		}
		return h
	}
	m.Rows(namespace, "", func(r Row) { host(r.Want.Host).see(r) })
	if namespace == "" {
		for rh, n := range m.Failures() {
			host(rh.Host).Kept += n
		}
	}
	all := make([]Host, 0, len(hosts))
	for _, h := range hosts {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Host) int {
		return cmp.Or(cmp.Compare(b.Failing, a.Failing), cmp.Compare(b.Stale, a.Stale), cmp.Compare(b.Kept, a.Kept), cmp.Compare(b.Wanted, a.Wanted), strings.Compare(a.Name, b.Name))
	})
	return all
}

func (h *Host) see(r Row) {
	h.Wanted++
	switch r.Condition.State {
	case condition.Failing:
		h.Failing++
		h.Reasons[r.Condition.Reason]++
		if r.Timer != nil {
			h.Retries++
			if h.Next.IsZero() || r.Timer.At.Before(h.Next) {
				h.Next = r.Timer.At
			}
		}
	case condition.Waiting:
		h.Waiting++
	case condition.IsStale:
		h.Stale++
	case condition.Well:
	}
}

// Namespaces returns the namespaces that want something, in order.
func (m *Model) Namespaces() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	var all []string
	for key := range m.state.wants {
		if !seen[key.Namespace] {
			seen[key.Namespace] = true
			all = append(all, key.Namespace)
		}
	}
	slices.Sort(all)
	return all
}

// Failed returns how many failures have passed.
func (m *Model) Failed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.passed.failed
}
