package keys

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
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
	// PausedHosts are sorted by their number of keys, largest first.
	PausedHosts []PausedHost `json:"pausedHosts,omitempty"`
}

// PausedHost is a host that asked for a pause.
type PausedHost struct {
	Host string `json:"host"`
	// Keys is the number of waiting keys.
	Keys int `json:"keys"`
	// Reason and Status describe the response that asked for the pause, if a timer has them.
	Reason string `json:"reason,omitempty"`
	Status int32  `json:"status,omitempty"`
	// NextTry is the next attempt for any of the keys. A good response ends the pause.
	NextTry time.Time `json:"nextTry"`
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
}

// ReadOverview reads all keys, timers and consumers, and counts failures. Objects may be nil. Errors wrap
// operate.ErrNoConsumer, or jetstream.ErrStreamNotFound.
func ReadOverview(
	ctx context.Context, conn *operate.Connection, objects Objects, now func() time.Time,
) (Overview, error) {
	view := Overview{Server: conn.Where}
	if err := view.ReadConsumers(ctx, conn); err != nil {
		return view, err
	}
	streams, err := ReadStreams(ctx, conn.Client, objects, now())
	if err != nil {
		return view, err
	}
	view.Now, view.Groups = Count(streams.Keys), Groups(streams.Keys)
	for _, t := range streams.Timers {
		view.Timers.Add(t.At, time.Now())
	}
	view.PausedHosts = pausedHosts(streams.Timers)
	view.Failures, view.LastHour = operate.Total(streams.Failures), len(streams.Recent)
	return view, nil
}

// Streams is the content of the streams at one time.
type Streams struct {
	Keys   []Key
	Timers Timers
	// Failures counts all failures. Recent has the failures of the last hour, newest first, without Message.
	Failures map[operate.ReasonHost]uint64
	Recent   []operate.DeadLetter
}

// ReadStreams reads the streams. Objects may be nil.
func ReadStreams(
	ctx context.Context, client *operate.Client, objects Objects, now time.Time,
) (s Streams, err error) {
	reader := Reader{Client: client, Now: now, Objects: objects}
	if s.Keys, s.Timers, err = reader.Read(ctx); err != nil {
		return Streams{}, err
	}
	if s.Failures, err = client.CountDeadLetters(ctx, operate.DeadLetterFilter{}); err != nil {
		return Streams{}, err
	}
	for f, err := range client.DeadLetters(ctx, operate.DeadLetterFilter{Since: now.Add(-time.Hour)}) {
		if err != nil {
			return Streams{}, err
		}
		f.Message = nil
		s.Recent = append(s.Recent, f)
	}
	return s, nil
}

func pausedHosts(timers Timers) []PausedHost {
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

// ReadConsumers reads the consumers of the fetchers and the writer, with two requests each. It returns the
// same errors as ReadOverview.
func (o *Overview) ReadConsumers(ctx context.Context, conn *operate.Connection) error {
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
			Redelivered: info.NumRedelivered, Readers: info.NumWaiting,
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
		o.Consumers = append(o.Consumers, state)
	}
	return nil
}

// maxUnread is how long work may wait without a reader before the pipeline counts as blocked.
const maxUnread = 10 * time.Second

// oldest returns the time of the oldest waiting message (zero: it cannot be read).
func oldest(ctx context.Context, conn *operate.Connection, stream jetstream.Stream, from uint64) time.Time {
	if stream.CachedInfo().Config.Name != pipeline.Requests {
		return stream.CachedInfo().State.FirstTime // the writer's messages are removed when they are handled
	}
	at, _ := conn.Client.Waiting(ctx, from) // zero on error
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

// Word returns the state of a key whose style fits the headline on web pages.
func (o Overview) Word() string {
	switch {
	case o.Blocked != "" || o.Now.Failing() > 0:
		return "failing"
	case o.Paused || o.Now[keystate.Stale] > 0:
		return "stale"
	}
	return "ok"
}
