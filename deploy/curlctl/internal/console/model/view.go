package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Numbers returns the overview of a namespace (empty: all). Failures is 0 for a single namespace.
func (r *Reading) Numbers(namespace string) overview.Overview {
	n := r.State
	n.Now, n.Groups = keys.Count(r.within(namespace)), keys.Groups(r.within(namespace))
	for _, t := range r.Streams.Timers {
		fired := t.At.Before(r.seen) && !t.At.Before(r.AsOf)
		if !fired && (namespace == "" || t.Key.Namespace == namespace) {
			n.Timers.Add(t.At, r.seen)
		}
	}
	if namespace == "" {
		n.Failures = operate.Total(r.Streams.Failures)
	}
	for _, f := range r.Streams.Recent {
		if r.seen.Sub(f.At) < time.Hour && (namespace == "" || f.Key.Namespace == namespace) {
			n.LastHour++
		}
	}
	return n
}

// within returns the keys of a namespace (empty: all).
func (r *Reading) within(namespace string) []keys.Key {
	if namespace == "" {
		return r.Streams.Keys
	}
	from, _ := r.find(pipeline.Key{Namespace: namespace})
	to := from
	for to < len(r.Streams.Keys) && r.Streams.Keys[to].Namespace == namespace {
		to++
	}
	return r.Streams.Keys[from:to]
}

func (r *Reading) find(key pipeline.Key) (int, bool) {
	compare := func(a keys.Key, b pipeline.Key) int { return keys.Compare(a.Key, b) }
	return slices.BinarySearchFunc(r.Streams.Keys, key, compare)
}

// Key returns a wanted key, or nil.
func (r *Reading) Key(key pipeline.Key) *keys.Key {
	if at, found := r.find(key); found {
		return &r.Streams.Keys[at]
	}
	return nil
}

// Filter selects keys. Empty fields select all.
type Filter struct {
	Namespace, Name, Host string
	// Failing excludes good keys.
	Failing bool
}

// Wants returns at most n selected keys after the cursor, and the number of all selected keys.
func (r *Reading) Wants(f Filter, after pipeline.Key, n int) (rows []keys.Key, all int) {
	for _, k := range r.within(f.Namespace) {
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
	// Wanted counts all keys. Failing, Pending and Stale count keys by state. Failing includes refused keys.
	Wanted, Failing, Pending, Stale int
	// Reasons counts failing keys.
	Reasons map[string]int
	// Next is the next attempt of a failing key (zero: there is none).
	Next time.Time
	// Kept counts the failures of all namespaces.
	Kept uint64
}

// Hosts returns the hosts of a namespace, or of all, most failing keys first.
func (r *Reading) Hosts(namespace string) []Host {
	hosts := map[string]Host{}
	for _, k := range r.within(namespace) {
		h := hosts[k.Host]
		h.Wanted++
		switch c := k.Condition; c.State {
		case keystate.Failing, keystate.Refused:
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
		case keystate.OK, keystate.Fetched, keystate.Ignored:
		}
		hosts[k.Host] = h
	}
	if namespace == "" {
		for group, n := range r.Streams.Failures {
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
