package model

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Numbers returns the overview.
func (r *Reading) Numbers() overview.Overview {
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

// Host has the counts of one host.
type Host struct {
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
func (r *Reading) Hosts() []Host {
	hosts := map[string]Host{}
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
