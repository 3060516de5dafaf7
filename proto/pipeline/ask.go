package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// PublishDue asks for a fetch now, in place of the key's pending timer, which
// is cancelled by the same publish. A second one with the same id within two
// minutes is dropped by the server and told as a duplicate. The error wraps
// ErrSuperseded when the want that due belongs to has been replaced, and
// ErrInFlight when that cannot be told yet.
func (c *Client) PublishDue(ctx context.Context, due *v1.Due, id string) (duplicate bool, err error) {
	key := KeyOf(due.GetWant())
	data, err := proto.Marshal(due)
	if err != nil {
		return false, fmt.Errorf("encode due of %s: %w", key, err)
	}
	m := nats.NewMsg(key.Due())
	m.Data = data
	inject(ctx, m.Header)
	m.Header.Set(headerScheduleNext, "purge")
	m.Header.Set(headerScheduler, key.Timer())
	ack, err := c.publishFor(ctx, m, key, due.GetWantSequence(), jetstream.WithMsgID(id), jetstream.WithMsgTTL(DueTTL))
	if err != nil {
		return false, fmt.Errorf("publish due of %s: %w", key, err)
	}
	return ack.Duplicate, nil
}

// Timer is a pending timer of a key.
type Timer struct {
	// Key that it belongs to.
	Key Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it fires.
	At time.Time
	// SetAt is when it was set.
	SetAt time.Time
	// Due is what will be published then.
	Due *v1.Due
}

// PendingTimer returns the pending timer of a key. The error wraps ErrNoMessage
// when there is none.
func (c *Client) PendingTimer(ctx context.Context, key Key) (Timer, error) {
	m, err := c.get(ctx, c.directGet()+Requests+"."+key.Timer(), nil)
	if err != nil {
		return Timer{}, fmt.Errorf("read timer of %s: %w", key, err)
	}
	return timer(m)
}

// LastDue returns the sequence of the last message that asked for another look
// at a key. The error wraps ErrNoMessage when there is none.
func (c *Client) LastDue(ctx context.Context, key Key) (sequence uint64, err error) {
	m, err := c.get(ctx, c.directGet()+Requests+"."+key.Due(), nil)
	if err != nil {
		return 0, fmt.Errorf("read due of %s: %w", key, err)
	}
	return m.Sequence, nil
}

// Timers reads the pending timers of a namespace and name; empty: all. An error
// that is Unreadable does not end it.
func (c *Client) Timers(ctx context.Context, namespace, name string) iter.Seq2[Timer, error] {
	return func(yield func(Timer, error) bool) {
		for m, err := range c.Scan(ctx, Range{Stream: Requests, Subject: objects(timerPrefix, namespace, name)}) {
			var t Timer
			if err == nil {
				t, err = timer(m)
			}
			if !yield(t, err) || err != nil && !Unreadable(err) {
				return
			}
		}
	}
}

func timer(m Message) (Timer, error) {
	_, key, err := ParseSubject(m.Subject)
	if err != nil {
		return Timer{}, err
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get(headerSchedule), "@at "))
	if err != nil {
		return Timer{}, fmt.Errorf("read timer of %s: %w: when it fires", key, ErrMalformed)
	}
	due, err := DecodeDue(key, m.Data)
	return Timer{Key: key, Sequence: m.Sequence, At: at, SetAt: m.Time, Due: due}, err
}

// StoredWant is the want of a key and where the stream keeps it.
type StoredWant struct {
	// Key that it belongs to.
	Key Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it was published.
	At time.Time
	// Want is what is asked for.
	Want *v1.Want
}

// Wants reads what is wanted for a namespace and name, without tombstones;
// empty: all. An error that is Unreadable does not end it.
func (c *Client) Wants(ctx context.Context, namespace, name string) iter.Seq2[StoredWant, error] {
	return func(yield func(StoredWant, error) bool) {
		for m, err := range c.Scan(ctx, Range{Stream: Requests, Subject: objects(wantPrefix, namespace, name)}) {
			w := StoredWant{Sequence: m.Sequence, At: m.Time}
			if err == nil {
				if _, w.Key, err = ParseSubject(m.Subject); err == nil {
					w.Want, err = DecodeWant(w.Key, m.Data)
				}
			}
			if err == nil && w.Want == nil {
				continue
			}
			if !yield(w, err) || err != nil && !Unreadable(err) {
				return
			}
		}
	}
}

// objects is the filter for the keys of ConfigMaps.
func objects(prefix, namespace, name string) string {
	return prefix + anyOr(namespace) + "." + anyOr(name) + ".*"
}

// Waiting returns the oldest message at or after a sequence that asks for a
// fetch, and when it was stored. The error wraps ErrNoMessage when there is
// none.
func (c *Client) Waiting(ctx context.Context, from uint64) (at time.Time, err error) {
	none := true
	for _, prefix := range []string{wantPrefix, duePrefix} {
		request, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": prefix + ">"})
		if err != nil {
			return time.Time{}, err
		}
		m, err := c.get(ctx, c.directGet()+Requests, request)
		switch {
		case errors.Is(err, ErrNoMessage):
		case err != nil:
			return time.Time{}, fmt.Errorf("read the oldest request: %w", err)
		case none || m.Time.Before(at):
			at, none = m.Time, false
		}
	}
	if none {
		return time.Time{}, fmt.Errorf("read the oldest request: %w", ErrNoMessage)
	}
	return at, nil
}

// PauseFetching stops the delivery of requests to all fetchers until a time;
// nothing is lost. It publishes to
// $JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher.
func (c *Client) PauseFetching(ctx context.Context, until time.Time) error {
	if _, err := c.js.PauseConsumer(ctx, Requests, FetcherConsumer, until); err != nil {
		return fmt.Errorf("pause consumer %s of stream %s: %w", FetcherConsumer, Requests, err)
	}
	return nil
}

// ResumeFetching lets the delivery go on, by the same subject.
func (c *Client) ResumeFetching(ctx context.Context) error {
	if _, err := c.js.ResumeConsumer(ctx, Requests, FetcherConsumer); err != nil {
		return fmt.Errorf("resume consumer %s of stream %s: %w", FetcherConsumer, Requests, err)
	}
	return nil
}
