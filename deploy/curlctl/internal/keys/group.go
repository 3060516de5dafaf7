package keys

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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
	// Namespaces counts the keys by namespace.
	Namespaces Tally `json:"namespaces"`
	// Since is when most of them were in the state, as far as it is known: a key that has been failing for weeks does
	// not hide when its host went down.
	Since time.Time `json:"since,omitzero"`
	// Next is the next attempt for any of them. Paused: it waits for the pause that the host asked for.
	Next   time.Time `json:"nextTry,omitzero"`
	Paused bool      `json:"paused,omitempty"`
}

// GroupTable returns the columns of Group.Row.
func GroupTable() printer.Table {
	return printer.Table{Columns: "KEYS|STATE|REASON|HOST|FOR|SINCE|NEXT TRY|NAMESPACES"}
}

// Row returns the row of GroupTable.
func (g Group) Row(now time.Time) printer.Row {
	reason, next := Reason(g.Reason, g.Status), ""
	if !g.Next.IsZero() {
		next = printer.Until(now, g.Next)
	}
	if g.Paused {
		next += " (paused)"
	}
	return printer.Row{Name: reason + "/" + g.Host, Object: g, Cells: printer.Cells(
		g.Count, g.State, reason, g.Host, printer.Age(now, g.Since), printer.Clock(g.Since), next, g.Namespaces,
	)}
}

// Tally counts by name.
type Tally map[string]int

// most is the maximum number of names that a Tally shows.
const most = 3

// String formats the largest counts, such as "shop 12, team-a 3, 5 more".
func (t Tally) String() string {
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), most)] {
		parts = append(parts, name+" "+printer.Grouped(t[name]))
	}
	if more := len(names) - most; more > 0 {
		parts = append(parts, printer.Grouped(more)+" more")
	}
	return strings.Join(parts, ", ")
}

// Groups groups the keys that are not good, the largest group first.
func Groups(all []Key) []Group {
	type id struct {
		state  keystate.State
		reason string
		status int32
		host   string
	}
	index, since := map[id]*Group{}, map[id][]time.Time{}
	for _, k := range all {
		c := k.Condition
		if c.Good() {
			continue
		}
		of := id{c.State, c.Reason, c.Status, k.Host}
		g := index[of]
		if g == nil {
			g = &Group{State: c.State, Reason: c.Reason, Status: c.Status, Host: k.Host, Namespaces: Tally{}}
			index[of] = g
		}
		g.Count++
		g.Namespaces[k.Namespace]++
		if !c.Next.IsZero() && (g.Next.IsZero() || c.Next.Before(g.Next)) {
			g.Next = c.Next
		}
		g.Paused = g.Paused || strings.HasPrefix(c.WaitsFor, "pause")
		if !c.Since.IsZero() {
			since[of] = append(since[of], c.Since)
		}
	}
	groups := make([]Group, 0, len(index))
	for of, g := range index {
		if times := since[of]; len(times) > 0 {
			slices.SortFunc(times, time.Time.Compare)
			g.Since = times[len(times)/2]
		}
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.State, b.State), cmp.Compare(a.Status, b.Status))
	})
	return groups
}

// Counts are the numbers of keys by state, without ignored ones. Keys is their sum.
type Counts map[keystate.State]int

// Keys returns the sum.
func (n Counts) Keys() (all int) {
	for _, count := range n {
		all += count
	}
	return all
}

// Failing returns the number of keys in a bad state: failing, refused or contested.
func (n Counts) Failing() (bad int) {
	for state, count := range n {
		if state.Bad() {
			bad += count
		}
	}
	return bad
}

// Count counts keys by state.
func Count(all []Key) Counts {
	n := Counts{}
	for _, k := range all {
		if k.Condition.State != keystate.Ignored {
			n[k.Condition.State]++
		}
	}
	return n
}

// String formats the counts of keys that are not good, such as "522 of 537 keys failing, 3 refused".
func (n Counts) String() string {
	text := ""
	for _, state := range keystate.States() {
		switch count := n[state]; {
		case count == 0 || state == keystate.OK:
		case text == "":
			text = printer.Grouped(count) + " of " + printer.Plural(n.Keys(), "key") + " " + string(state)
		default:
			text += ", " + printer.Grouped(count) + " " + string(state)
		}
	}
	switch {
	case text != "":
		return text
	case n.Keys() == 0:
		return "no keys are wanted"
	}
	return printer.Plural(n.Keys(), "key") + " up to date"
}
