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
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Overview is the state of the pipeline, as programs read it.
type Overview struct {
	Server    string     `json:"server"`
	Paused    bool       `json:"paused"`
	Resumes   *time.Time `json:"resumesAt,omitempty"`
	Wants     int        `json:"wants"`
	Timers    Timers     `json:"timers"`
	Failures  int        `json:"failures"`
	LastHour  int        `json:"failuresLastHour"`
	Consumers []Consumer `json:"consumers"`
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
	Name        string     `json:"name"`
	Stream      string     `json:"stream"`
	Backlog     uint64     `json:"backlog"`
	InFlight    int        `json:"inFlight"`
	Redelivered int        `json:"redelivered"`
	Readers     int        `json:"waitingPulls"`
	Lag         uint64     `json:"lag"`
	Oldest      *time.Time `json:"oldest,omitempty"`

	// Handled is the sequence up to which all messages were handled.
	Handled uint64 `json:"-"`
}

// Read reads all wants, timers and consumers, and counts failures. Unreadable messages are
// counted in unread. Errors wrap operate.ErrNoConsumer, or jetstream.ErrStreamNotFound.
func Read(
	ctx context.Context, conn *natsconn.Connection, unread *readable.Unread, now func() time.Time,
) (Overview, error) {
	view := Overview{Server: conn.Where}
	for _, err := range readable.Only(unread, conn.Client.Wants(ctx, "", "")) {
		if err != nil {
			return view, err
		}
		view.Wants++
	}
	timers, err := keys.Reader{Client: conn.Client, Unread: unread}.Timers(ctx)
	if err != nil {
		return view, err
	}
	for _, t := range timers.All {
		view.Timers.Add(t.At, time.Now())
	}
	view.PausedHosts = pausedHosts(timers.All)
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
	return view, view.ReadConsumers(ctx, conn)
}

func pausedHosts(timers []keys.Timer) []PausedHost {
	hosts := map[string]PausedHost{}
	for _, t := range timers {
		if t.WaitsFor != v1.WaitsFor_WAITS_FOR_PAUSE {
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
			host.Reason, host.Status = t.Reason(), t.Status
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
	if keys.IsOverdue(now, at) {
		t.Overdue++
	}
	if at.Before(now.Add(time.Minute)) {
		t.Minute++
	}
}

// ReadConsumers reads the consumers of the fetchers and the writer, with two requests each.
// It has the errors of Read.
func (o *Overview) ReadConsumers(ctx context.Context, conn *natsconn.Connection) error {
	o.Consumers = nil
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
			o.Paused, o.Resumes = info.Paused, resumes(info)
			if state.Backlog+uint64(state.InFlight) > 0 {
				if at, err := conn.Client.Waiting(ctx, info.AckFloor.Stream+1); err == nil {
					state.Oldest = &at
				}
			}
		}
		o.Consumers, o.Clock = append(o.Consumers, state), stream.CachedInfo().TimeStamp
	}
	return nil
}

// resumes returns the end of a pause; nil: it has none, or there is no pause.
func resumes(info *jetstream.ConsumerInfo) *time.Time {
	if until := info.Config.PauseUntil; info.Paused && until != nil && time.Until(*until) < operate.Forever/2 {
		return until
	}
	return nil
}
