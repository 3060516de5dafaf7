package keys

import (
	"cmp"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

// Group counts the keys of a host with the same state and reason.
type Group struct {
	State  keystate.State `json:"state"`
	Reason string         `json:"reason"`
	Status int32          `json:"status,omitempty"`
	Host   string         `json:"host,omitempty"`
	Count  int            `json:"count"`
	// Since is the earliest start of the state, if it is known.
	Since time.Time `json:"since,omitzero"`
}

// Groups groups the keys that are not good, the largest group first.
func Groups(all []Key) []Group {
	index, groups := map[Group]int{}, []Group{} // the index has groups without Count and Since
	for _, k := range all {
		c := k.Condition
		if c.Good() {
			continue
		}
		group := Group{State: c.State, Reason: c.Reason, Status: c.Status, Host: k.Host}
		i, known := index[group]
		if !known {
			i = len(groups)
			index[group] = i
			groups = append(groups, group)
		}
		g := &groups[i]
		g.Count++
		if since := c.Since; !since.IsZero() && (g.Since.IsZero() || since.Before(g.Since)) {
			g.Since = since
		}
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Host, b.Host))
	})
	return groups
}

// Counts are the numbers of keys by state.
type Counts struct {
	// Keys counts all keys that are not ignored.
	Keys    int `json:"keys"`
	Failing int `json:"failing"`
	Refused int `json:"refused"`
	// Contested counts keys that hold the value of another field manager.
	Contested int `json:"contested"`
	Stale     int `json:"stale"`
	Pending   int `json:"pending"`
}

// Count counts keys by state.
func Count(all []Key) (n Counts) {
	for _, k := range all {
		switch n.Keys++; k.Condition.State {
		case keystate.Failing:
			n.Failing++
		case keystate.Refused:
			n.Refused++
		case keystate.Contested:
			n.Contested++
		case keystate.Stale:
			n.Stale++
		case keystate.Pending:
			n.Pending++
		case keystate.Ignored:
			n.Keys--
		case keystate.OK:
		}
	}
	return n
}

// String formats the counts of keys that are not good, such as "522 of 537 keys failing, 3 refused".
func (n Counts) String() string {
	text := ""
	for _, one := range []struct {
		count int
		state keystate.State
	}{
		{n.Failing, keystate.Failing},
		{n.Refused, keystate.Refused},
		{n.Contested, keystate.Contested},
		{n.Stale, keystate.Stale},
		{n.Pending, keystate.Pending},
	} {
		switch {
		case one.count == 0:
		case text == "":
			text = printer.Grouped(one.count) + " of " + printer.Plural(n.Keys, "key") + " " + string(one.state)
		default:
			text += ", " + printer.Grouped(one.count) + " " + string(one.state)
		}
	}
	switch {
	case text != "":
		return text
	case n.Keys == 0:
		return "no keys are wanted"
	}
	return printer.Plural(n.Keys, "key") + " up to date"
}
