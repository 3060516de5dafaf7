package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// A tombstone is marked like a deleted key of a NATS KV store (ADR-8).
const (
	headerOperation = "KV-Operation"
	operationDelete = "DEL"
)

// Client publishes and reads the messages of the pipeline. Published messages carry the trace
// context of ctx, if any. It is safe for concurrent use.
type Client struct {
	js jetstream.JetStream
}

// NewClient returns a client on a JetStream context.
func NewClient(js jetstream.JetStream) *Client { return &Client{js: js} }

// JetStream returns the JetStream context of the client.
func (c *Client) JetStream() jetstream.JetStream { return c.js }

// KeyOf returns the key of a want.
func KeyOf(w *v1.Want) Key {
	return Key{Namespace: w.GetNamespace(), Name: w.GetName(), Key: w.GetKey()}
}

// Digest returns the SHA-256 of a body as 64 lower-case hexadecimal digits, as in results and in the status.
func Digest[B string | []byte](body B) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// SameRequest reports whether two wants make the same request, for any versions of the object.
func SameRequest(a, b *v1.Want) bool {
	return a.GetUid() == b.GetUid() && a.GetUrl() == b.GetUrl() && a.GetNow() == b.GetNow() &&
		a.GetSha256() == b.GetSha256() && a.GetDrift() == b.GetDrift() &&
		a.GetRefresh().AsDuration() == b.GetRefresh().AsDuration() &&
		slices.Equal(a.GetExpect(), b.GetExpect()) && a.GetSelect() == b.GetSelect()
}

// PublishWant replaces the want of its key and cancels the key's timer, if the last message on the
// subject still has the sequence last (0 means that there is none).
//
// If it does not, PublishWant reads the subject. A message with the same request counts as ours,
// because the response to an earlier try may have been lost. Otherwise the error wraps
// ErrSuperseded, also if the expected message has expired, as tombstones do. It wraps ErrTooLarge
// if the want exceeds MaxRequestBytes.
func (c *Client) PublishWant(ctx context.Context, w *v1.Want, last uint64) (seq uint64, err error) {
	key := KeyOf(w)
	m, err := newMessage(ctx, key.WantSubject(), w)
	if err != nil {
		return 0, err
	}
	return c.replaceWant(ctx, m, key, last, func(have *v1.Want) bool {
		return have != nil && have.GetEpoch() == w.GetEpoch() && SameRequest(have, w) &&
			(have.GetCached() == nil || w.GetCached() != nil) // a want in sync triggers no fetch
	})
}

// PublishTombstone replaces the want of a key with a tombstone and cancels the key's timer, under the
// same condition as PublishWant.
func (c *Client) PublishTombstone(ctx context.Context, key Key, last uint64) (seq uint64, err error) {
	m, err := newMessage(ctx, key.WantSubject(), nil)
	if err != nil {
		return 0, err
	}
	m.Header.Set(headerOperation, operationDelete)
	m.Header.Set(jetstream.MsgTTLHeader, TombstoneTTL.String())
	return c.replaceWant(ctx, m, key, last, func(have *v1.Want) bool { return have == nil })
}

// replaceWant publishes m in place of the want of a key. A message that is there instead counts as m
// if it is ours.
func (c *Client) replaceWant(ctx context.Context, m *nats.Msg, key Key, last uint64, ours func(have *v1.Want) bool,
) (uint64, error) {
	alsoCancelTimer(m, key)
	return c.replace(ctx, "publish want of "+key.String(), m, last, func(have Message) bool {
		w, err := DecodeWant(key, have.Data)
		return err == nil && ours(w)
	})
}

// replace publishes m to Requests, if the last message on its subject still has the sequence last. A message that is
// there instead counts as m if it is ours, because the response to an earlier try may have been lost.
func (c *Client) replace(ctx context.Context, what string, m *nats.Msg, last uint64, ours func(have Message) bool,
) (uint64, error) {
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(Requests),
		jetstream.WithExpectLastSequencePerSubject(last))
	if err == nil {
		return ack.Sequence, nil
	}
	err = fmt.Errorf("%s: %w", what, wrapServerError(err))
	if errors.Is(err, ErrSuperseded) {
		if have, ok := c.readBack(ctx, m.Subject, last); ok && ours(have) {
			return have.Sequence, nil
		}
	}
	return 0, err
}

// readBack returns the message that replaced the one with the sequence last. A replica that does not know it yet is
// asked again. A fetcher may not read timers by their subject in the API, so the subject is in the request.
func (c *Client) readBack(ctx context.Context, subject string, last uint64) (have Message, ok bool) {
	for wait := askFirst; ; wait *= 2 {
		have, err := c.request(ctx, Requests, map[string]any{"last_by_subj": subject})
		if err == nil && have.Sequence > last {
			return have, true
		}
		behind := err == nil || last == 0 && errors.Is(err, ErrNoMessage)
		if !behind || wait > askMax || !sleep(ctx, wait) {
			return Message{}, false
		}
	}
}

// SetTimer sets the one timer of a key and returns its sequence. At the given time the server
// publishes due on the key's due subject, a few milliseconds late and at least 250 ms after SetTimer.
// The error wraps ErrSuperseded if the want of due has been replaced, and ErrInFlight if that is not
// known yet.
func (c *Client) SetTimer(ctx context.Context, due *v1.Due, at time.Time) (seq uint64, err error) {
	key := KeyOf(due.GetWant())
	m, err := timer(ctx, key, due, at)
	if err != nil {
		return 0, err
	}
	ack, err := c.publish(ctx, "timer of "+key.String(), m, jetstream.WithExpectStream(Requests),
		whileWanted(key, due.GetWantSequence()))
	return ack.Sequence, err
}

// ReplaceTimer replaces the timer of a key that has the sequence last. The error wraps
// ErrSuperseded if that timer is no longer pending, because it has fired, or because another timer
// or a new want replaced it. The same due at the very same time counts as ours, see PublishWant.
func (c *Client) ReplaceTimer(ctx context.Context, due *v1.Due, at time.Time, last uint64) (seq uint64, err error) {
	key := KeyOf(due.GetWant())
	m, err := timer(ctx, key, due, at)
	if err != nil {
		return 0, err
	}
	return c.replace(ctx, "replace timer of "+key.String(), m, last, func(have Message) bool {
		return have.Header.Get(jetstream.ScheduleHeader) == m.Header.Get(jetstream.ScheduleHeader) &&
			bytes.Equal(have.Data, m.Data)
	})
}

// cancelTTL is how long the message of CancelTimer is kept.
const cancelTTL = time.Second

// CancelTimer cancels the timer of a key whose handling has ended. NATS cancels a timer by a header of any message.
// On the timer's own subject it would make the server reject the next want. The error wraps ErrSuperseded if the want
// of the key has another sequence.
func (c *Client) CancelTimer(ctx context.Context, key Key, want uint64) error {
	m := nats.NewMsg(cancelPrefix + key.tokens())
	alsoCancelTimer(m, key)
	_, err := c.publish(ctx, "end of the timer of "+key.String(), m, jetstream.WithExpectStream(Requests),
		whileWanted(key, want), jetstream.WithMsgTTL(cancelTTL))
	return err
}

// timer returns the message that sets a timer.
func timer(ctx context.Context, key Key, due *v1.Due, at time.Time) (*nats.Msg, error) {
	m, err := newMessage(ctx, key.TimerSubject(), due)
	if err != nil {
		return nil, err
	}
	// The option of package jetstream truncates to whole seconds, which fires early.
	m.Header.Set(jetstream.ScheduleHeader, "@at "+at.UTC().Format(time.RFC3339Nano))
	m.Header.Set(jetstream.ScheduleTargetHeader, key.DueSubject())
	m.Header.Set(jetstream.ScheduleTTLHeader, DueTTL.String())
	return m, nil
}

// PublishDue requests a fetch now, and cancels the key's pending timer in the same publish. The
// server drops a second due with the same id within two minutes and reports it as a duplicate. The
// error wraps ErrSuperseded if the want of due has been replaced, and ErrInFlight if that is not
// known yet.
func (c *Client) PublishDue(ctx context.Context, due *v1.Due, id string) (duplicate bool, err error) {
	key := KeyOf(due.GetWant())
	m, err := newMessage(ctx, key.DueSubject(), due)
	if err != nil {
		return false, err
	}
	alsoCancelTimer(m, key)
	ack, err := c.publish(ctx, "due of "+key.String(), m, jetstream.WithExpectStream(Requests),
		whileWanted(key, due.GetWantSequence()), jetstream.WithMsgID(id), jetstream.WithMsgTTL(DueTTL))
	return ack.Duplicate, err
}

// whileWanted makes a publish fail unless the want of the key still has that sequence.
func whileWanted(key Key, want uint64) jetstream.PublishOpt {
	return jetstream.WithExpectLastSequenceForSubject(want, key.WantSubject())
}

// publish publishes m. It retries while another conditional publish is in flight, because the server
// cannot check the condition then. After a change of leader, that publish may be one of ours whose
// response was lost.
func (c *Client) publish(ctx context.Context, what string, m *nats.Msg, opts ...jetstream.PublishOpt,
) (jetstream.PubAck, error) {
	for wait := askFirst; ; wait *= 2 {
		ack, err := c.js.PublishMsg(ctx, m, opts...)
		switch {
		case err == nil:
			return *ack, nil
		case !hasCode(err, codeWrongLastSequenceConstant):
			return jetstream.PubAck{}, fmt.Errorf("publish %s: %w", what, wrapServerError(err))
		case wait > askMax || !sleep(ctx, wait):
			return jetstream.PubAck{}, fmt.Errorf("publish %s: %w (%w)", what, ErrInFlight, err)
		}
	}
}

const (
	// askFirst and askMax are the shortest and longest pauses before such a retry.
	askFirst = 10 * time.Millisecond
	askMax   = 100 * time.Millisecond
)

// sleep waits, and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// PublishResult publishes an outcome for the writer. It sets no message id, because anybody who
// guessed one could suppress the result of another. A second result of the same trigger has no
// effect, thanks to its fence. The error wraps ErrFull if the stream is full, and ErrTooLarge if
// the result exceeds the server's max_payload.
func (c *Client) PublishResult(ctx context.Context, r *v1.Result) error {
	key := KeyOf(r.GetWant())
	subject := key.FailureSubject()
	switch r.GetOutcome().(type) {
	case *v1.Result_Content:
		subject = key.ContentSubject()
	case *v1.Result_Sync: // only the watcher may publish there
		subject = key.SyncSubject()
	default:
		// Unmodified ends a failure, so it uses the subject of failures. On the subject of bodies
		// it would replace a pending body.
	}
	m, err := newMessage(ctx, subject, r)
	if err == nil {
		_, err = c.publish(ctx, "result of "+key.String(), m, jetstream.WithExpectStream(Results))
	}
	return err
}

// PublishDeadLetter publishes a dead letter. A redelivered trigger has the same id and adds no
// second entry.
func (c *Client) PublishDeadLetter(ctx context.Context, key Key, d *v1.DeadLetter, id string) error {
	f := d.GetFailure()
	m, err := newMessage(ctx, key.DeadLetterSubject(failure.Reason(f.GetClass()), f.GetHost()), d)
	if err == nil {
		_, err = c.publish(ctx, "dead letter of "+key.String(), m, jetstream.WithExpectStream(DeadLetters),
			jetstream.WithMsgID(id))
	}
	return err
}

// newMessage returns a message with an optional payload and the trace context of ctx.
func newMessage(ctx context.Context, subject string, payload proto.Message) (*nats.Msg, error) {
	m := nats.NewMsg(subject)
	inject(ctx, m.Header)
	var err error
	if m.Data, err = proto.Marshal(payload); err != nil {
		return nil, fmt.Errorf("encode message for %s: %w", subject, err)
	}
	return m, nil
}

// alsoCancelTimer makes the server remove the timer of a key when it stores m.
func alsoCancelTimer(m *nats.Msg, key Key) {
	m.Header.Set(jetstream.ScheduleNextHeader, "purge")
	m.Header.Set(jetstream.SchedulerHeader, key.TimerSubject())
}

// Headers of W3C Trace Context, sections 3.2 and 3.3. NATS headers are case-sensitive:
// propagation.HeaderCarrier would write Traceparent, which no reader finds.
const (
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"
)

// maxTraceState is the maximum number of bytes of tracestate that are passed on. W3C Trace Context
// section 3.3.1.5 permits dropping the rest, and a message with a large body has little room for
// headers.
const maxTraceState = 256

// inject writes the trace context of ctx, if any, to a header.
func inject(ctx context.Context, h nats.Header) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return
	}
	if len(span.TraceState().String()) > maxTraceState {
		ctx = trace.ContextWithSpanContext(ctx, span.WithTraceState(trace.TraceState{}))
	}
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	for name, value := range fields {
		h.Set(name, value)
	}
}

// ContextWithTrace returns ctx with the trace context of a header, if any.
func ContextWithTrace(ctx context.Context, h nats.Header) context.Context {
	if h.Get(headerTraceparent) == "" {
		return ctx
	}
	fields := propagation.MapCarrier{
		headerTraceparent: h.Get(headerTraceparent),
		headerTracestate:  h.Get(headerTracestate),
	}
	return propagation.TraceContext{}.Extract(ctx, fields)
}

// Traceparent formats a trace context for a payload (W3C Trace Context section 3.2.2); empty if
// there is none.
func Traceparent(span trace.SpanContext) string {
	if !span.IsValid() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" +
		(span.TraceFlags() & trace.FlagsSampled).String()
}

// ParseTraceparent is the inverse of Traceparent. Malformed text gives an invalid trace context.
func ParseTraceparent(text string) trace.SpanContext {
	fields := propagation.MapCarrier{headerTraceparent: text}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), fields))
}
