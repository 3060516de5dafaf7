package model

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/passing"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// load reads the streams; what passes meanwhile is applied after it.
func (m *Model) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m.mu.Lock()
	m.queue, m.queued = []*nats.Msg{}, 0
	m.mu.Unlock()
	loaded, err := m.read(ctx)
	m.finish(loaded, err)
	return err
}

// Part is one of what is read from the streams.
type Part string

// The parts.
const (
	Wants    Part = "wants"
	Timers   Part = "timers"
	Failures Part = "failures"
)

// reading is the state on its way.
type reading struct {
	state

	client *operate.Client
	now    time.Time
	unread readable.Unread
}

// read reads all parts. What is missing, or forbidden, lasts: the others are read
// nevertheless.
func (m *Model) read(ctx context.Context) (state, error) {
	r := &reading{client: m.conn.Client, now: m.now(), state: state{
		wants: map[pipeline.Key]Want{}, timers: map[pipeline.Key]Timer{}, minutes: minutes{}, missing: map[Part]error{},
	}}
	parts := map[Part]part{Wants: {pipeline.Requests, r.readWants}, Timers: {pipeline.Requests, r.readTimers}, Failures: {pipeline.Failures, r.readFailures}}
	for name, one := range parts {
		limited, end := m.unless(ctx, one.stream)
		err := one.read(limited)
		if refused := (*natsconn.PermissionError)(nil); err != nil && errors.As(context.Cause(limited), &refused) {
			err = refused
		}
		end()
		switch {
		case err == nil:
			continue
		case errors.As(err, new(*natsconn.PermissionError)), errors.Is(err, jetstream.ErrStreamNotFound):
		default:
			return r.state, err
		}
		if r.missing[name] = err; len(r.missing) == len(parts) {
			return r.state, err
		}
	}
	r.state.unread, _ = r.unread.Count()
	return r.state, nil
}

// part is how one of them is read, and from which stream.
type part struct {
	stream string
	read   func(context.Context) error
}

func (r *reading) readWants(ctx context.Context) error {
	for w, err := range readable.Only(&r.unread, r.client.Wants(ctx, "", "")) {
		if err != nil {
			return err
		}
		r.wants[w.Key] = kept(w.Want, w.Sequence, w.At)
	}
	return nil
}

func (r *reading) readTimers(ctx context.Context) error {
	for t, err := range readable.Only(&r.unread, r.client.Timers(ctx, "", "")) {
		if err != nil {
			return err
		}
		r.timers[t.Key] = Timer{Timer: t.WithoutWant(), late: overview.Overdue(r.now, t.At)}
	}
	return nil
}

func (r *reading) readFailures(ctx context.Context) (err error) {
	if r.failures, err = r.client.CountDeadLetters(ctx, operate.DeadLetterFilter{}); err != nil {
		r.failures = map[operate.ReasonHost]uint64{}
		return err
	}
	for f, err := range readable.Only(&r.unread, r.client.DeadLetters(ctx, operate.DeadLetterFilter{Since: r.now.Add(-time.Hour)})) {
		if err != nil {
			return err
		}
		r.minutes.add(f.Key.Namespace, f.At)
	}
	return nil
}

func kept(w *v1.Want, sequence uint64, at time.Time) Want {
	return Want{UID: w.GetUid(), URL: w.GetUrl(), Host: pipeline.HostOf(w.GetUrl()), Refresh: w.GetRefresh().AsDuration(), Sequence: sequence, At: at}
}

// poll reads how far the consumers are.
func (m *Model) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	var read overview.Overview
	err := read.ReadConsumers(ctx, m.conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.state.err = err
		return
	}
	m.state.err = nil
	m.state.overview = read
	m.state.samples = append(m.state.samples, newSample(read))
	if len(m.state.samples) > SampleCount {
		m.state.samples = m.state.samples[1:]
	}
}

// take is called with what passes.
func (m *Model) take(msg *nats.Msg) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size := len(msg.Subject) + len(msg.Data) + messageBytes; m.queue != nil && m.queued+size <= queueBytes {
		m.queue, m.queued = append(m.queue, msg), m.queued+size
	}
	m.apply(msg)
	m.state.passed.count++
	if m.state.passed.room(m.now()) {
		if p, ok := passing.Describe(msg, m.now()); ok {
			m.state.passed.add(p)
		}
	}
}

// apply brings the state up to date with a message.
func (m *Model) apply(msg *nats.Msg) {
	if reason, host, key, err := pipeline.ParseDeadLetter(msg.Subject); err == nil {
		m.state.failures[operate.ReasonHost{Reason: reason, Host: host}]++
		m.state.minutes.add(key.Namespace, m.now())
		m.state.passed.fail(Failure{Reason: reason, Host: host, Key: key})
		return
	}
	kind, key, err := pipeline.ParseSubject(msg.Subject)
	if err != nil {
		return
	}
	switch kind {
	case pipeline.KindWant:
		m.wanted(key, msg)
	case pipeline.KindTimer:
		at, err := pipeline.FiresAt(pipeline.Message{Header: msg.Header})
		due, malformed := pipeline.DecodeDue(key, msg.Data)
		if err == nil && malformed == nil {
			m.state.timers[key] = Timer{Timer: operate.Timer{Key: key, At: at, SetAt: m.now(), Due: due}.WithoutWant()}
		}
	case pipeline.KindContent, pipeline.KindFailure, pipeline.KindRemoved: // they change nothing that is counted
	case pipeline.KindDue:
		if removesTimer(msg) {
			delete(m.state.timers, key)
		}
	}
}

// removesTimer reports whether the server has removed the timer of the key with a
// want or due.
func removesTimer(msg *nats.Msg) bool { return msg.Header.Get("Nats-Scheduler") != "" }

func (m *Model) wanted(key pipeline.Key, msg *nats.Msg) {
	w, err := pipeline.DecodeWant(key, msg.Data)
	if err != nil {
		return
	}
	if removesTimer(msg) || w == nil {
		delete(m.state.timers, key)
	}
	if w == nil {
		delete(m.state.wants, key)
		return
	}
	// A republished message has its sequence; of others it is read at the next load.
	sequence, _ := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	m.state.wants[key] = kept(w, sequence, m.now())
}

// expire removes the timers that have fired: that is not seen by who follows.
func (m *Model) expire() {
	now := m.now()
	for key, t := range m.state.timers {
		if !t.late && t.At.Before(now) {
			delete(m.state.timers, key)
		}
	}
}
