package model

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/traffic"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// load reads the streams into what is there. What passes meanwhile is newer than what
// is read, and what is neither read nor passes is no more.
func (m *Model) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m.mu.Lock()
	m.loads++
	m.mu.Unlock()
	var unread readable.Unread
	missing, err := m.read(ctx, &unread)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = err; err == nil {
		m.unread, _ = unread.Count()
		m.missing, m.asOf = missing, m.now()
		if missing[Failures] != nil {
			m.forget()
		}
		m.sweep(m.loads, m.now())
	}
	close(m.changed)
	m.changed = make(chan struct{})
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

// read reads all parts. What is missing, or forbidden, lasts: the others are read
// nevertheless.
func (m *Model) read(ctx context.Context, unread *readable.Unread) (missing map[Part]error, err error) {
	missing = map[Part]error{}
	parts := map[Part]part{Wants: {pipeline.Requests, m.readWants}, Timers: {pipeline.Requests, m.readTimers}, Failures: {pipeline.Failures, m.readFailures}}
	for name, one := range parts {
		limited, end := m.refusals.CancelOnDenied(ctx, one.stream)
		err := one.read(limited, unread)
		if refused := (*natsconn.PermissionError)(nil); err != nil && errors.As(context.Cause(limited), &refused) {
			err = refused
		}
		end()
		switch {
		case err == nil:
			continue
		case errors.As(err, new(*natsconn.PermissionError)), errors.Is(err, jetstream.ErrStreamNotFound):
		default:
			return nil, err
		}
		if missing[name] = err; len(missing) == len(parts) {
			return nil, err
		}
	}
	return missing, nil
}

// part is how one of them is read, and from which stream.
type part struct {
	stream string
	read   func(context.Context, *readable.Unread) error
}

func (m *Model) readWants(ctx context.Context, unread *readable.Unread) error {
	for w, err := range readable.Only(unread, m.conn.Client.Wants(ctx, "", "")) {
		if err != nil {
			return err
		}
		m.found(w.Key, func(r *record) {
			switch newer := r.wantSeen == (generation{m.loads, true}); {
			case !newer:
				r.want(w.Want, w.Sequence, w.At)
				r.wantSeen = generation{load: m.loads}
			case r.url == w.Want.GetUrl() && r.uid == w.Want.GetUid(): // the one that has passed
				r.sequence = w.Sequence
			}
		})
	}
	return nil
}

func (m *Model) readTimers(ctx context.Context, unread *readable.Unread) error {
	for t, err := range readable.Only(unread, m.conn.Client.Timers(ctx, "", "")) {
		if err != nil {
			return err
		}
		m.found(t.Key, func(r *record) {
			if r.timerSeen != (generation{m.loads, true}) {
				r.timer, r.timerSeen = newTimer(t, overview.Overdue(m.now(), t.At)), generation{load: m.loads}
			}
		})
	}
	return nil
}

func (m *Model) found(key pipeline.Key, do func(*record)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(key, m.now(), do)
}

// readFailures counts anew, and adds what has passed since. Of those in that moment
// some may count twice, or not, until the next load.
func (m *Model) readFailures(ctx context.Context, unread *readable.Unread) error {
	counts, err := m.conn.Client.CountDeadLetters(ctx, operate.DeadLetterFilter{})
	before := m.Failed()
	var all hour
	lately := map[string]*hour{}
	if err == nil {
		err = m.readLately(ctx, unread, func(f operate.DeadLetter) {
			all.add(f.At)
			if lately[f.Key.Namespace] == nil {
				lately[f.Key.Namespace] = new(hour)
			}
			lately[f.Key.Namespace].add(f.At)
		})
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	m.all.failed = all
	for rh, n := range counts {
		m.store(rh, n)
	}
	for namespace, h := range lately {
		m.namespace(namespace).failed = *h
	}
	for _, f := range m.passed.since(before) {
		m.fail(f)
	}
	return nil
}

// forget begins to count failures anew.
func (m *Model) forget() {
	m.failures, m.stored, m.all.failed = map[operate.ReasonHost]uint64{}, 0, hour{}
	for _, s := range m.byNamespace {
		s.failed = hour{}
	}
}

// readLately calls each with the failures of the last hour.
func (m *Model) readLately(ctx context.Context, unread *readable.Unread, each func(operate.DeadLetter)) error {
	for f, err := range readable.Only(unread, m.conn.Client.DeadLetters(ctx, operate.DeadLetterFilter{Since: m.now().Add(-time.Hour)})) {
		if err != nil {
			return err
		}
		each(f)
	}
	return nil
}

// store counts failures that are stored.
func (m *Model) store(rh operate.ReasonHost, n uint64) {
	m.failures[rh] += n
	m.stored += n
}

// fail counts a failure that is new.
func (m *Model) fail(f Failure) {
	m.store(operate.ReasonHost{Reason: f.Reason, Host: f.Host}, 1)
	m.all.failed.add(f.at)
	m.namespace(f.Key.Namespace).failed.add(f.at)
}

// Poll reads now how far the consumers are.
func (m *Model) Poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	var read overview.Overview
	began := m.now()
	err := read.ReadConsumers(ctx, m.conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = err; err != nil {
		return
	}
	sample, handled, last := newSample(read)
	m.overview, m.ahead = read, ahead(began, m.now(), read.Clock)
	m.handle(handled, last, m.now())
	m.samples = append(m.samples, sample)
	if len(m.samples) > SampleCount {
		m.samples = m.samples[1:]
	}
}

// ahead returns how far this clock, by which something took from began to ended, is
// ahead of another, by which it was done at a time; 0: by so little that it does not
// matter.
func ahead(began, ended, at time.Time) time.Duration {
	switch {
	case began.Sub(at) > doctor.WrongClock:
		return began.Sub(at)
	case at.Sub(ended) > doctor.WrongClock:
		return ended.Sub(at)
	}
	return 0
}

// takeAll takes what passes until ctx ends.
func (m *Model) takeAll(ctx context.Context, passing <-chan *nats.Msg) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-passing:
			m.take(msg)
		}
	}
}

func (m *Model) take(msg *nats.Msg) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.apply(msg, now)
	if m.passed.room(now) {
		if p, ok := traffic.Describe(msg, now); ok {
			m.passed.add(p)
		}
	}
}

// apply brings the model up to date with a message.
func (m *Model) apply(msg *nats.Msg, now time.Time) {
	if reason, host, key, err := pipeline.ParseDeadLetter(msg.Subject); err == nil {
		f := Failure{Reason: reason, Host: host, Key: key, at: now}
		m.fail(f)
		m.passed.fail(f)
		return
	}
	kind, key, err := pipeline.ParseSubject(msg.Subject)
	if err != nil {
		return
	}
	live := generation{m.loads, true}
	switch kind {
	case pipeline.KindWant:
		w, err := pipeline.DecodeWant(key, msg.Data)
		if err != nil {
			return
		}
		// A republished message has its sequence; of others it is read at the next load.
		sequence, _ := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
		m.change(key, now, func(r *record) {
			r.want(w, sequence, now)
			r.wantSeen = live
			if w == nil || removesTimer(msg) {
				r.timer, r.timerSeen = nil, live
			}
		})
	case pipeline.KindTimer:
		at, err := pipeline.FiresAt(pipeline.Message{Header: msg.Header})
		due, malformed := pipeline.DecodeDue(key, msg.Data)
		if err == nil && malformed == nil {
			m.change(key, now, func(r *record) {
				r.timer, r.timerSeen = newTimer(operate.Timer{At: at, SetAt: now, Due: due}, false), live
			})
		}
	case pipeline.KindDue:
		if removesTimer(msg) {
			m.change(key, now, func(r *record) { r.timer, r.timerSeen = nil, live })
		}
	case pipeline.KindContent, pipeline.KindFailure, pipeline.KindReconcile: // they change nothing that is counted
	}
}

// removesTimer reports whether the server has removed the timer of the key with a
// want or due.
func removesTimer(msg *nats.Msg) bool { return msg.Header.Get(jetstream.SchedulerHeader) != "" }
