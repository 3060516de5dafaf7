package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

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

// alsoCancelTimer makes the server remove the timer of a key when it stores m.
func alsoCancelTimer(m *nats.Msg, key Key) {
	m.Header.Set(jetstream.ScheduleNextHeader, "purge")
	m.Header.Set(jetstream.SchedulerHeader, key.TimerSubject())
}

// FiresAt returns when the timer in a message fires. The error wraps ErrMalformed.
func FiresAt(m Message) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get(jetstream.ScheduleHeader), "@at "))
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer %d: %w: when it fires", m.Sequence, ErrMalformed)
	}
	return at, nil
}

// CountTimers returns the number of pending timers.
func (c *Client) CountTimers(ctx context.Context) (uint64, error) {
	m, err := c.request(ctx, Requests, map[string]any{"seq": 1, "next_by_subj": KindTimer.All(), "batch": 1})
	if errors.Is(err, ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count timers: %w", err)
	}
	behind, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count timers: number after the first: %w", err)
	}
	return 1 + behind, nil
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

// DecodeDue decodes the payload of a due. Errors wrap ErrMalformed.
func DecodeDue(key Key, data []byte) (*v1.Due, error) {
	return decode(key, data, new(v1.Due), (*v1.Due).GetWant)
}

// CauseName returns the name of a cause in metric labels and traces, such as refresh.
func CauseName(c v1.Cause) string { return strings.ToLower(strings.TrimPrefix(c.String(), "CAUSE_")) }

// WaitsForName returns the name of a wait in metric labels and logs, such as shared_get.
func WaitsForName(w v1.WaitsFor) string {
	return strings.ToLower(strings.TrimPrefix(w.String(), "WAITS_FOR_"))
}
