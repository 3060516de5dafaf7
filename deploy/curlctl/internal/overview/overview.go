// Package overview reads the pipeline at a glance: what is wanted, scheduled and
// failed, and how far the consumers are.
package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Overview is the pipeline as programs read it.
type Overview struct {
	Server    string     `json:"server"`
	Paused    bool       `json:"paused"`
	Resumes   *time.Time `json:"resumesAt,omitempty"`
	Wants     int        `json:"wants"`
	Timers    Timers     `json:"timers"`
	Failures  int        `json:"failures"`
	LastHour  int        `json:"failuresLastHour"`
	Consumers []Consumer `json:"consumers"`
	// PausedHosts are in the order of their keys, the most first.
	PausedHosts []PausedHost `json:"pausedHosts,omitempty"`

	// Clock is the server's while the consumers were read.
	Clock time.Time `json:"-"`
}

// PausedHost is a host that has asked for a pause, by the timers that wait for that.
type PausedHost struct {
	Host string `json:"host"`
	// Keys that wait.
	Keys int `json:"keys"`
	// Reason and HTTP status of the attempt that was asked to wait; empty and 0: no
	// timer holds them.
	Reason string `json:"reason,omitempty"`
	Status int32  `json:"status,omitempty"`
	// NextTry is when the first of the keys is tried again. A good answer ends the
	// pause.
	NextTry time.Time `json:"nextTry"`
}

// Timers are the pending timers in numbers.
type Timers struct {
	Pending int        `json:"pending"`
	Overdue int        `json:"overdue"`
	Minute  int        `json:"dueWithinMinute"`
	Next    *time.Time `json:"next,omitempty"`
}

// Consumer is a durable consumer and how far it is.
type Consumer struct {
	Name        string     `json:"name"`
	Stream      string     `json:"stream"`
	Backlog     uint64     `json:"backlog"`
	InFlight    int        `json:"inFlight"`
	Redelivered int        `json:"redelivered"`
	Readers     int        `json:"waitingPulls"`
	Lag         uint64     `json:"lag"`
	Oldest      *time.Time `json:"oldest,omitempty"`

	// Handled is the sequence up to which all has been dealt with, and Last that
	// of the newest message of the stream.
	Handled uint64 `json:"-"`
	Last    uint64 `json:"-"`
}

// ErrNoConsumer means that a durable consumer does not exist.
var ErrNoConsumer = errors.New("not found")

// Forever is what a pause without an end lasts: JetStream wants a time.
const Forever = 100 * 365 * 24 * time.Hour

// Read reads all wants and timers and the failures of the last hour, and counts
// the failures that are kept. Messages that cannot be read are left out and
// counted in unread. Errors wrap ErrNoConsumer, or jetstream.ErrStreamNotFound.
func Read(ctx context.Context, conn *natsconn.Connection, unread *readable.Unread, now func() time.Time) (Overview, error) {
	view := Overview{Server: conn.Where}
	for _, err := range readable.Only(unread, conn.Client.Wants(ctx, "", "")) {
		if err != nil {
			return view, err
		}
		view.Wants++
	}
	paused := pausedHosts{}
	for t, err := range readable.Only(unread, conn.Client.Timers(ctx, "", "")) {
		if err != nil {
			return view, err
		}
		view.Timers.See(t.At, time.Now())
		paused.see(t)
	}
	view.PausedHosts = paused.sorted()
	counts, err := conn.Client.CountDeadLetters(ctx, operate.DeadLetterFilter{})
	if err != nil {
		return view, err
	}
	for _, n := range counts {
		view.Failures += int(n)
	}
	for _, err := range readable.Only(unread, conn.Client.DeadLetters(ctx, operate.DeadLetterFilter{Since: now().Add(-time.Hour)})) {
		if err != nil {
			return view, err
		}
		view.LastHour++
	}
	return view, view.ReadConsumers(ctx, conn)
}

// pausedHosts are the hosts that have asked for a pause, by name.
type pausedHosts map[string]*PausedHost

func (p pausedHosts) see(t operate.Timer) {
	if t.Due.GetWaitsFor() != v1.WaitsFor_WAITS_FOR_PAUSE {
		return
	}
	name := condition.Host(t.Due.GetWant().GetUrl())
	host, ok := p[name]
	if !ok {
		host = &PausedHost{Host: name, NextTry: t.At}
		p[name] = host
	}
	host.Keys++
	if t.At.Before(host.NextTry) {
		host.NextTry = t.At
	}
	if class := t.Due.GetReported(); class != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED && host.Reason == "" {
		host.Reason, host.Status = pipeline.Reason(class), t.Due.GetStatusCode()
	}
}

func (p pausedHosts) sorted() []PausedHost {
	all := make([]PausedHost, 0, len(p))
	for _, host := range p {
		all = append(all, *host)
	}
	slices.SortFunc(all, func(a, b PausedHost) int { return cmp.Or(cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Host, b.Host)) })
	return all
}

// See counts a timer that fires at a time.
func (t *Timers) See(at, now time.Time) {
	t.Pending++
	if t.Next == nil || at.Before(*t.Next) {
		t.Next = &at
	}
	if Overdue(now, at) {
		t.Overdue++
	}
	if at.Before(now.Add(time.Minute)) {
		t.Minute++
	}
}

// Overdue reports whether a timer should have fired.
func Overdue(now, at time.Time) bool { return now.Sub(at) > condition.LateTimer }

// ReadConsumers reads how far the fetchers and the writer are, by two requests
// for each. Errors are those of Read.
func (o *Overview) ReadConsumers(ctx context.Context, conn *natsconn.Connection) error {
	o.Consumers = nil
	for _, c := range []struct{ stream, name string }{
		{pipeline.Requests, pipeline.FetcherConsumer}, {pipeline.Results, pipeline.WriterConsumer},
	} {
		stream, err := conn.JetStream.Stream(ctx, c.stream)
		if err != nil {
			return err
		}
		info, err := consumerInfo(ctx, stream, c.name)
		if err != nil {
			return err
		}
		state := Consumer{
			Name: c.name, Stream: c.stream, Backlog: info.NumPending, InFlight: info.NumAckPending, Redelivered: info.NumRedelivered,
			Readers: info.NumWaiting, Lag: stream.CachedInfo().State.LastSeq - min(info.AckFloor.Stream, stream.CachedInfo().State.LastSeq),
			Handled: info.AckFloor.Stream, Last: stream.CachedInfo().State.LastSeq,
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

// resumes returns when a pause ends by itself; nil: never, or there is none.
func resumes(info *jetstream.ConsumerInfo) *time.Time {
	if until := info.Config.PauseUntil; info.Paused && until != nil && time.Until(*until) < Forever/2 {
		return until
	}
	return nil
}

func consumerInfo(ctx context.Context, stream jetstream.Stream, name string) (*jetstream.ConsumerInfo, error) {
	consumer, err := stream.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("consumer %s of stream %s (`curlctl setup` creates it): %w", name, stream.CachedInfo().Config.Name, ErrNoConsumer)
	}
	if err != nil {
		return nil, err
	}
	return consumer.CachedInfo(), nil
}

// Fetchers returns the state of the consumer that the fetchers share; up to its
// AckFloor.Stream they have taken all requests. Errors are those of Read.
func Fetchers(ctx context.Context, js jetstream.JetStream) (*jetstream.ConsumerInfo, error) {
	stream, err := js.Stream(ctx, pipeline.Requests)
	if err != nil {
		return nil, err
	}
	return consumerInfo(ctx, stream, pipeline.FetcherConsumer)
}
