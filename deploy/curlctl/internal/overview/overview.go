// Package overview reads the state of the pipeline at a glance.
package overview

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Overview is the state of the pipeline, as programs read it.
type Overview struct {
	Server  string     `json:"server"`
	Paused  bool       `json:"paused"`
	Resumes *time.Time `json:"resumesAt,omitempty"`
	// Blocked is the consumer whose messages nobody reads (empty: there is none).
	Blocked string `json:"blocked,omitempty"`
	// Now counts the keys by state, and Groups those that are not good.
	Now       keys.Counts  `json:"now"`
	Groups    []keys.Group `json:"groups,omitempty"`
	Timers    Timers       `json:"timers"`
	Failures  int          `json:"failures"`
	LastHour  int          `json:"failuresLastHour"`
	Consumers []Consumer   `json:"consumers"`
	// PausedHosts are sorted by their number of keys, largest first.
	PausedHosts []PausedHost `json:"pausedHosts,omitempty"`

	// Clock is the server's clock when the consumers were read.
	Clock time.Time `json:"-"`
}

// PausedHost is a host that asked for a pause.
type PausedHost struct {
	Host string `json:"host"`
	// Keys is the number of waiting keys.
	Keys int `json:"keys"`
	// Reason and Status belong to the attempt that was asked to wait, if a timer has them.
	Reason string `json:"reason,omitempty"`
	Status int32  `json:"status,omitempty"`
	// NextTry is the next attempt for any of the keys. A good response ends the pause.
	NextTry time.Time `json:"nextTry"`
}

// Timers counts the pending timers.
type Timers struct {
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

	// Handled is the sequence up to which all messages were handled.
	Handled uint64 `json:"-"`
}

// Read reads all keys, timers and consumers, and counts failures. Unreadable messages are counted in
// unread; objects may be nil. Errors wrap operate.ErrNoConsumer, or jetstream.ErrStreamNotFound.
func Read(
	ctx context.Context, conn *natsconn.Connection, unread *readable.Unread, objects keys.Objects, now func() time.Time,
) (Overview, error) {
	view := Overview{Server: conn.Where}
	if err := view.ReadConsumers(ctx, conn); err != nil {
		return view, err
	}
	reader := keys.Reader{Client: conn.Client, Unread: unread, Now: now(), Objects: objects}
	timers, err := reader.Timers(ctx)
	if err != nil {
		return view, err
	}
	all, err := reader.Keys(ctx, timers, view.Consumers[0].Handled)
	if err != nil {
		return view, err
	}
	view.Now, view.Groups = keys.Count(all), keys.Groups(all)
	for _, t := range timers {
		view.Timers.Add(t.At, time.Now())
	}
	view.PausedHosts = pausedHosts(timers)
	counts, err := conn.Client.CountDeadLetters(ctx, operate.DeadLetterFilter{})
	if err != nil {
		return view, err
	}
	view.Failures = operate.Total(counts)
	lastHour := operate.DeadLetterFilter{Since: now().Add(-time.Hour)}
	for _, err := range readable.Only(unread, conn.Client.DeadLetters(ctx, lastHour)) {
		if err != nil {
			return view, err
		}
		view.LastHour++
	}
	return view, nil
}

func pausedHosts(timers keys.Timers) []PausedHost {
	hosts := map[string]PausedHost{}
	for _, t := range timers {
		if t.Due.GetWaitsFor() != v1.WaitsFor_WAITS_FOR_PAUSE {
			continue
		}
		name := condition.Host(t.URL)
		host, known := hosts[name]
		host.Host = name
		host.Keys++
		if !known || t.At.Before(host.NextTry) {
			host.NextTry = t.At
		}
		if host.Reason == "" {
			host.Reason, host.Status = t.Reason(), t.Due.GetStatusCode()
		}
		hosts[name] = host
	}
	return slices.SortedFunc(maps.Values(hosts), func(a, b PausedHost) int {
		return cmp.Or(cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Host, b.Host))
	})
}

// Add counts a timer that fires at a time.
func (t *Timers) Add(at, now time.Time) {
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
// It has the errors of Read.
func (o *Overview) ReadConsumers(ctx context.Context, conn *natsconn.Connection) error {
	o.Consumers, o.Blocked = nil, ""
	for _, c := range []struct{ stream, name string }{
		{pipeline.Requests, pipeline.FetcherConsumer}, {pipeline.Results, pipeline.WriterConsumer},
	} {
		stream, err := conn.JetStream.Stream(ctx, c.stream)
		if err != nil {
			return err
		}
		info, err := operate.Consumer(ctx, stream, c.name)
		if err != nil {
			return err
		}
		last := stream.CachedInfo().State.LastSeq
		state := Consumer{
			Name: c.name, Stream: c.stream, Backlog: info.NumPending, InFlight: info.NumAckPending,
			Redelivered: info.NumRedelivered, Readers: info.NumWaiting, Handled: info.AckFloor.Stream,
			Lag: last - min(info.AckFloor.Stream, last),
		}
		if c.name == pipeline.FetcherConsumer {
			o.Paused, o.Resumes = info.Paused, operate.Resumes(info)
		}
		if state.Backlog+uint64(state.InFlight) > 0 {
			state.Oldest = oldest(ctx, conn, stream, info.AckFloor.Stream+1)
		}
		unread := state.Readers == 0 && state.InFlight == 0 && !state.Oldest.IsZero()
		if now := stream.CachedInfo().TimeStamp; unread && now.Sub(state.Oldest) > maxUnread && !info.Paused &&
			o.Blocked == "" {
			o.Blocked = c.name
		}
		o.Consumers, o.Clock = append(o.Consumers, state), stream.CachedInfo().TimeStamp
	}
	return nil
}

// maxUnread is how long work may wait without a reader before the pipeline counts as blocked.
const maxUnread = 10 * time.Second

// oldest returns the time of the oldest waiting message (zero: it cannot be read).
func oldest(ctx context.Context, conn *natsconn.Connection, stream jetstream.Stream, from uint64) time.Time {
	if stream.CachedInfo().Config.Name != pipeline.Requests {
		return stream.CachedInfo().State.FirstTime // the writer's messages are removed when they are handled
	}
	at, _ := conn.Client.Waiting(ctx, from) // zero on error
	return at
}
