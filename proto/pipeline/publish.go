package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// A tombstone is marked as a deleted key of a KV store of NATS is (ADR-8).
const (
	headerOperation = "KV-Operation"
	operationDelete = "DEL"
)

// Client publishes and reads the messages of the pipeline. What it publishes
// carries the trace context of ctx, if that has one. It is safe for concurrent
// use.
type Client struct {
	js jetstream.JetStream
}

// NewClient returns a client on a JetStream context.
func NewClient(js jetstream.JetStream) *Client { return &Client{js: js} }

// JetStream returns the context that the client was made with.
func (c *Client) JetStream() jetstream.JetStream { return c.js }

// KeyOf returns the key that a want is for.
func KeyOf(w *v1.Want) Key {
	return Key{Namespace: w.GetNamespace(), Name: w.GetName(), Key: w.GetKey()}
}

// SameRequest reports whether two wants ask for the same, whatever version of
// the object they were seen at.
func SameRequest(a, b *v1.Want) bool {
	return a.GetUid() == b.GetUid() && a.GetUrl() == b.GetUrl() && a.GetNow() == b.GetNow() &&
		a.GetSha256() == b.GetSha256() && a.GetDrift() == b.GetDrift() &&
		a.GetRefresh().AsDuration() == b.GetRefresh().AsDuration()
}

// PublishWant replaces the want of its key and cancels the key's timer, if the
// last message on the subject still has the sequence last (0: there is none).
//
// When it has not, the subject is read back: a message that asks for the same
// counts as ours, since the answer to an earlier try may have been lost. Else
// the error wraps ErrSuperseded; so it does when what had the sequence last has
// expired, as a tombstone does. It wraps ErrTooLarge when the want exceeds
// MaxRequestBytes.
func (c *Client) PublishWant(ctx context.Context, w *v1.Want, last uint64) (seq uint64, err error) {
	key := KeyOf(w)
	m, err := newMessage(ctx, key.Want(), w)
	if err != nil {
		return 0, err
	}
	seq, err = c.replaceWant(ctx, m, key, last)
	if !errors.Is(err, ErrSuperseded) {
		return seq, err
	}
	have, at, ok := c.readBack(ctx, key, last)
	if ok && have != nil && have.GetEpoch() == w.GetEpoch() && SameRequest(have, w) &&
		(have.GetSettled() == nil || w.GetSettled() != nil) { // one that is in sync triggers no fetch
		return at, nil
	}
	return 0, err
}

// PublishTombstone replaces the want of a key with a tombstone and cancels the
// key's timer, under the same condition as PublishWant.
func (c *Client) PublishTombstone(ctx context.Context, key Key, last uint64) (seq uint64, err error) {
	m, err := newMessage(ctx, key.Want(), nil)
	if err != nil {
		return 0, err
	}
	m.Header.Set(headerOperation, operationDelete)
	seq, err = c.replaceWant(ctx, m, key, last, jetstream.WithMsgTTL(TombstoneTTL))
	if !errors.Is(err, ErrSuperseded) {
		return seq, err
	}
	if have, at, ok := c.readBack(ctx, key, last); ok && have == nil {
		return at, nil
	}
	return 0, err
}

// readBack returns what took the place of the message with the sequence last,
// if that can be read. A replica that does not know of it yet is asked again.
func (c *Client) readBack(ctx context.Context, key Key, last uint64) (have *v1.Want, seq uint64, ok bool) {
	for wait := askFirst; ; wait *= 2 {
		have, seq, err := c.LastWant(ctx, key)
		if err == nil && seq > last {
			return have, seq, true
		}
		behind := err == nil || last == 0 && errors.Is(err, ErrNoMessage)
		if !behind || wait > askMax || !rest(ctx, wait) {
			return nil, 0, false
		}
	}
}

// replaceWant publishes m in place of the want of a key.
func (c *Client) replaceWant(ctx context.Context, m *nats.Msg, key Key, last uint64, opts ...jetstream.PublishOpt) (uint64, error) {
	cancelTimer(m, key)
	opts = append(opts, jetstream.WithExpectStream(Requests), jetstream.WithExpectLastSequencePerSubject(last))
	ack, err := c.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, fmt.Errorf("publish want of %s: %w", key, Refusal(err))
	}
	return ack.Sequence, nil
}

// PublishTimer sets the one timer of a key: at the given time the server
// publishes due on the key's due subject. It fires a few milliseconds late,
// and never sooner than 250 ms after it was set. The error wraps ErrSuperseded
// when the want that due belongs to has been replaced, and ErrInFlight when
// that cannot be known yet.
func (c *Client) PublishTimer(ctx context.Context, due *v1.Due, at time.Time) error {
	_, err := c.SetTimer(ctx, due, at)
	return err
}

// SetTimer is PublishTimer, and returns the sequence of the timer.
func (c *Client) SetTimer(ctx context.Context, due *v1.Due, at time.Time) (seq uint64, err error) {
	key := KeyOf(due.GetWant())
	m, err := timer(ctx, key, due, at)
	if err != nil {
		return 0, err
	}
	ack, err := c.publishFor(ctx, m, key, due.GetWantSequence())
	if err != nil {
		return 0, fmt.Errorf("publish timer of %s: %w", key, err)
	}
	return ack.Sequence, nil
}

// ReplaceTimer sets the timer of a key in place of the one with the sequence last.
// The error wraps ErrSuperseded when that is not pending any more: it has fired, or
// another timer or a new want took its place.
func (c *Client) ReplaceTimer(ctx context.Context, due *v1.Due, at time.Time, last uint64) (seq uint64, err error) {
	key := KeyOf(due.GetWant())
	m, err := timer(ctx, key, due, at)
	if err != nil {
		return 0, err
	}
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Requests), jetstream.WithExpectLastSequencePerSubject(last))
	if err != nil {
		return 0, fmt.Errorf("replace timer of %s: %w", key, Refusal(err))
	}
	return ack.Sequence, nil
}

// cancelTTL is how long the message stays that cancels a timer.
const cancelTTL = time.Second

// CancelTimer cancels the timer of a key whose handling has ended, by a message where
// begun handlings are recorded: one in place of the timer would keep the server from
// taking the next want. The error wraps ErrSuperseded when the want of the key has
// another sequence.
func (c *Client) CancelTimer(ctx context.Context, key Key, want uint64) error {
	m := nats.NewMsg(begunSubject(key.Want()))
	cancelTimer(m, key)
	if _, err := c.publishFor(ctx, m, key, want, jetstream.WithMsgTTL(cancelTTL)); err != nil {
		return fmt.Errorf("cancel timer of %s: %w", key, err)
	}
	return nil
}

// timer returns the message that sets a timer.
func timer(ctx context.Context, key Key, due *v1.Due, at time.Time) (*nats.Msg, error) {
	m, err := newMessage(ctx, key.Timer(), due)
	if err != nil {
		return nil, err
	}
	// The option of package jetstream truncates to whole seconds, which fires early.
	m.Header.Set(jetstream.ScheduleHeader, "@at "+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(jetstream.ScheduleTargetHeader, key.Due())
	m.Header.Set(jetstream.ScheduleTTLHeader, DueTTL.String())
	return m, nil
}

// PublishDue asks for a fetch now, in place of the key's pending timer, which
// is cancelled by the same publish. A second one with the same id within two
// minutes is dropped by the server and reported as a duplicate. The error wraps
// ErrSuperseded when the want that due belongs to has been replaced, and
// ErrInFlight when that cannot be known yet.
func (c *Client) PublishDue(ctx context.Context, due *v1.Due, id string) (duplicate bool, err error) {
	key := KeyOf(due.GetWant())
	m, err := newMessage(ctx, key.Due(), due)
	if err != nil {
		return false, err
	}
	cancelTimer(m, key)
	ack, err := c.publishFor(ctx, m, key, due.GetWantSequence(), jetstream.WithMsgID(id), jetstream.WithMsgTTL(DueTTL))
	if err != nil {
		return false, fmt.Errorf("publish due of %s: %w", key, err)
	}
	return ack.Duplicate, nil
}

// publishFor publishes m if the want of the key still has a sequence. The
// server does not know that while another publish with such a condition is in flight,
// which after a change of the leader may be one of ours without its answer; so
// it is asked again.
func (c *Client) publishFor(ctx context.Context, m *nats.Msg, key Key, want uint64, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	opts = append(opts, jetstream.WithExpectStream(Requests), jetstream.WithExpectLastSequenceForSubject(want, key.Want()))
	for wait := askFirst; ; wait *= 2 {
		ack, err := c.js.PublishMsg(ctx, m, opts...)
		switch {
		case err == nil:
			return ack, nil
		case !hasCode(err, codeWrongLastSequenceConstant):
			return nil, Refusal(err)
		case wait > askMax || !rest(ctx, wait):
			return nil, fmt.Errorf("%w (%w)", ErrInFlight, err)
		}
	}
}

const (
	// askFirst and askMax bound the pauses before a server is asked again that
	// does not know yet.
	askFirst = 10 * time.Millisecond
	askMax   = 100 * time.Millisecond
)

// rest waits, and reports whether ctx is not done.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// PublishResult hands an outcome to the writer. It has no message id: whoever
// guessed one could suppress the result of another. A second result of the same
// trigger changes nothing, by its fence. The error wraps ErrFull when the stream
// is full, and ErrTooLarge when the result exceeds the server's max_payload.
func (c *Client) PublishResult(ctx context.Context, r *v1.Result) error {
	key := KeyOf(r.GetWant())
	subject := key.Failure()
	switch r.GetOutcome().(type) {
	case *v1.Result_Content:
		subject = key.Content()
	case *v1.Result_Reconcile: // only the watcher may publish there
		subject = key.Reconcile()
	default:
		// Unmodified ends a failure, so it belongs among the changes of that
		// state. On the subject of bodies it would push one out that is not yet
		// written.
	}
	m, err := newMessage(ctx, subject, r)
	if err != nil {
		return err
	}
	if _, err = c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Results)); err != nil {
		return fmt.Errorf("publish result of %s: %w", key, Refusal(err))
	}
	return nil
}

// PublishDeadLetter publishes what could not be done. The id identifies the
// message, so that a redelivered trigger adds no second entry.
func (c *Client) PublishDeadLetter(ctx context.Context, key Key, d *v1.DeadLetter, id string) error {
	m, err := newMessage(ctx, key.DeadLetter(Reason(d.GetFailure().GetClass()), d.GetFailure().GetHost()), d)
	if err != nil {
		return err
	}
	if _, err = c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Failures), jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("publish dead letter of %s: %w", key, Refusal(err))
	}
	return nil
}

// newMessage returns a message that carries a payload, if there is one, and the
// trace context of ctx.
func newMessage(ctx context.Context, subject string, payload proto.Message) (*nats.Msg, error) {
	m := nats.NewMsg(subject)
	inject(ctx, m.Header)
	var err error
	if m.Data, err = proto.Marshal(payload); err != nil {
		return nil, fmt.Errorf("encode message for %s: %w", subject, err)
	}
	return m, nil
}

// cancelTimer lets the server take back the timer of a key when it stores m.
func cancelTimer(m *nats.Msg, key Key) {
	m.Header.Set(jetstream.ScheduleNextHeader, "purge")
	m.Header.Set(jetstream.SchedulerHeader, key.Timer())
}
