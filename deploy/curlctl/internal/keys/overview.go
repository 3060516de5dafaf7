package keys

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Overview summarizes the state of the pipeline.
type Overview struct {
	Server  string     `json:"server"`
	Paused  bool       `json:"paused"`
	Resumes *time.Time `json:"resumesAt,omitempty"`
	// Blocked is the consumer whose messages nobody reads (empty: none).
	Blocked string `json:"blocked,omitempty"`
	// Now counts the keys by state. Groups has the keys that are not good.
	Now       Counts      `json:"now"`
	Groups    []Group     `json:"groups,omitempty"`
	Timers    TimerCounts `json:"timers"`
	Failures  int         `json:"failures"`
	LastHour  int         `json:"failuresLastHour"`
	Consumers []Consumer  `json:"consumers"`
	// Keys are sorted by namespace, name and key.
	Keys []Key `json:"-"`
}

// TimerCounts counts the pending timers.
type TimerCounts struct {
	Pending int        `json:"pending"`
	Overdue int        `json:"overdue"`
	Minute  int        `json:"dueWithinMinute"`
	Next    *time.Time `json:"next,omitempty"`
}

// Consumer is the state of a durable consumer.
type Consumer struct {
	Name        string    `json:"name"`
	Stream      string    `json:"stream"`
	Backlog     uint64    `json:"backlog"`
	InFlight    int       `json:"inFlight"`
	Redelivered int       `json:"redelivered"`
	Readers     int       `json:"waitingPulls"`
	Lag         uint64    `json:"lag"`
	Oldest      time.Time `json:"oldest,omitzero"`

	MaxInFlight int `json:"-"`
}

// Row returns the row of the consumer in lists.
func (c Consumer) Row(now time.Time) printer.Row {
	return printer.Row{
		Cells: printer.Cells(
			"CONSUMER", c.Name, "STREAM", c.Stream, "BACKLOG", c.Backlog, "IN FLIGHT", c.InFlight,
			"REDELIVERED", c.Redelivered, "OLDEST", printer.Age(now, c.Oldest), "READERS", c.Readers,
		),
		Wide: printer.Cells("LAG", c.Lag),
	}
}

// ReadOverview reads all keys, timers and consumers of a server, and counts failures. Objects may be nil. Errors wrap
// broker.ErrNoConsumer, or jetstream.ErrStreamNotFound.
func ReadOverview(
	ctx context.Context, server string, client *broker.Client, objects Objects, now time.Time,
) (Overview, error) {
	o := Overview{Server: server}
	if err := o.ReadConsumers(ctx, client); err != nil {
		return o, err
	}
	all, timers, err := Reader{Client: client, Now: now, Objects: objects}.Read(ctx)
	if err != nil {
		return o, err
	}
	slices.SortFunc(all, func(a, b Key) int { return Compare(a.ConfigMapKey, b.ConfigMapKey) })
	o.Keys, o.Now, o.Groups = all, Count(all), Groups(all)
	for _, t := range timers {
		o.Timers.Add(t.At, now)
	}
	counts, err := client.CountDeadLetters(ctx, broker.DeadLetterFilter{})
	if err != nil {
		return o, err
	}
	o.Failures = broker.Total(counts)
	counts, err = client.CountDeadLetters(ctx, broker.DeadLetterFilter{Since: now.Add(-time.Hour)})
	o.LastHour = broker.Total(counts)
	return o, err
}

// Add counts a timer that fires at a time.
func (t *TimerCounts) Add(at, now time.Time) {
	t.Pending++
	if t.Next == nil || at.Before(*t.Next) {
		t.Next = &at
	}
	if keystate.IsOverdue(now, at) {
		t.Overdue++
	}
	if at.Before(now.Add(time.Minute)) {
		t.Minute++
	}
}

// ReadConsumers reads the consumers of the fetchers and the writer, with two requests each.
func (o *Overview) ReadConsumers(ctx context.Context, client *broker.Client) error {
	for _, c := range []struct{ stream, name string }{
		{pipeline.Requests, pipeline.FetcherConsumer}, {pipeline.Results, pipeline.WriterConsumer},
	} {
		stream, err := client.Stream(ctx, c.stream)
		if err != nil {
			return err
		}
		info, err := broker.Consumer(ctx, stream, c.name)
		if err != nil {
			return err
		}
		last := stream.CachedInfo().State.LastSeq
		state := Consumer{
			Name: c.name, Stream: c.stream, Backlog: info.NumPending, InFlight: info.NumAckPending,
			Redelivered: info.NumRedelivered, Readers: info.NumWaiting,
			Lag: last - min(info.AckFloor.Stream, last), MaxInFlight: info.Config.MaxAckPending,
		}
		if c.name == pipeline.FetcherConsumer {
			o.Paused, o.Resumes = info.Paused, broker.Resumes(info)
		}
		if state.Backlog+uint64(state.InFlight) > 0 {
			state.Oldest = oldest(ctx, client, stream, info.AckFloor.Stream+1)
		}
		unread := state.Readers == 0 && state.InFlight == 0 && !state.Oldest.IsZero()
		if now := stream.CachedInfo().TimeStamp; unread && now.Sub(state.Oldest) > maxUnread && !info.Paused &&
			o.Blocked == "" {
			o.Blocked = c.name
		}
		o.Consumers = append(o.Consumers, state)
	}
	return nil
}

// maxUnread is how long work may wait without a reader before the pipeline counts as blocked.
const maxUnread = 10 * time.Second

// oldest returns the time of the oldest waiting message (zero: it cannot be read).
func oldest(ctx context.Context, client *broker.Client, stream jetstream.Stream, from uint64) time.Time {
	if stream.CachedInfo().Config.Name != pipeline.Requests {
		return stream.CachedInfo().State.FirstTime // the writer's messages are removed when they are handled
	}
	at, _ := client.OldestWant(ctx, from) // zero on error
	return at
}

// Headline says in one line whether the pipeline works, and counts the keys that are not good.
func (o Overview) Headline(now time.Time) string {
	headline := "working, "
	switch {
	case o.Paused && o.Resumes != nil:
		headline = "paused, resumes in " + printer.Until(now, *o.Resumes) + ", "
	case o.Paused:
		headline = "paused until `curlctl resume`, "
	case o.Blocked == pipeline.FetcherConsumer:
		headline = "stopped: requests wait and no fetcher takes them, "
	case o.Blocked != "":
		headline = "stopped: results wait and no writer takes them, "
	}
	return headline + o.Now.String()
}

// Style returns the state of a key whose style fits the headline on web pages.
func (o Overview) Style() string {
	switch {
	case o.Blocked != "" || o.Now.Bad() > 0:
		return "failing"
	case o.Paused || o.Now[keystate.Stale] > 0:
		return "stale"
	}
	return "ok"
}

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

// Row returns the row of the group in lists.
func (g Group) Row(now time.Time) printer.Row {
	reason, next := Reason(g.Reason, g.Status), ""
	if !g.Next.IsZero() {
		next = printer.Until(now, g.Next)
	}
	if g.Paused {
		next += " (paused)"
	}
	return printer.Row{Name: reason + "/" + g.Host, Object: g, Cells: printer.Cells(
		"KEYS", g.Count, "STATE", g.State, "REASON", reason, "HOST", g.Host, "FOR", printer.Age(now, g.Since),
		"SINCE", printer.Clock(g.Since), "NEXT TRY", next, "NAMESPACES", g.Namespaces,
	)}
}

// Tally counts by name.
type Tally map[string]int

// maxNames is the maximum number of names that a Tally shows.
const maxNames = 3

// String formats the largest counts, such as "shop 12, team-a 3, 5 more".
func (t Tally) String() string {
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), maxNames)] {
		parts = append(parts, name+" "+printer.Grouped(t[name]))
	}
	if more := len(names) - maxNames; more > 0 {
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
		if k.Good() {
			continue
		}
		of := id{k.State, k.Reason, k.Status, k.Host}
		g := index[of]
		if g == nil {
			g = &Group{State: k.State, Reason: k.Reason, Status: k.Status, Host: k.Host, Namespaces: Tally{}}
			index[of] = g
		}
		g.Count++
		g.Namespaces[k.Namespace]++
		if !k.Next.IsZero() && (g.Next.IsZero() || k.Next.Before(g.Next)) {
			g.Next = k.Next
		}
		g.Paused = g.Paused || strings.HasPrefix(k.WaitsFor, "pause")
		if !k.Since.IsZero() {
			since[of] = append(since[of], k.Since)
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
func (c Counts) Keys() (all int) {
	for _, count := range c {
		all += count
	}
	return all
}

// Bad returns the number of keys in a bad state: failing, refused or contested.
func (c Counts) Bad() (bad int) {
	for state, count := range c {
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
		if k.State != keystate.Ignored {
			n[k.State]++
		}
	}
	return n
}

// String formats the counts of keys that are not good, such as "522 of 537 keys failing, 3 refused".
func (c Counts) String() string {
	text := ""
	for _, state := range keystate.States() {
		switch count := c[state]; {
		case count == 0 || state == keystate.OK:
		case text == "":
			text = printer.Grouped(count) + " of " + printer.Plural(c.Keys(), "key") + " " + string(state)
		default:
			text += ", " + printer.Grouped(count) + " " + string(state)
		}
	}
	switch {
	case text != "":
		return text
	case c.Keys() == 0:
		return "no keys are wanted"
	}
	return printer.Plural(c.Keys(), "key") + " up to date"
}
