package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// ErrNoMessage means that a subject holds no message. In a cluster, the replica may just be behind.
var ErrNoMessage = errors.New("subject holds no message")

// ErrMalformed means that a message cannot be decoded.
var ErrMalformed = errors.New("message is malformed")

// Unreadable reports whether an error concerns only one stored message, so that a reader can skip
// it.
func Unreadable(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrSubject)
}

// LastWant returns the last want of a key and its stream sequence. A tombstone is a nil want. The
// error wraps ErrNoMessage if there is none, and ErrMalformed if it cannot be decoded. The sequence
// is valid then.
//
// In a cluster the response may be slightly stale.
func (c *Client) LastWant(ctx context.Context, key Key) (*v1.Want, uint64, error) {
	m, err := c.LastMessage(ctx, Requests, key.WantSubject())
	if err != nil {
		return nil, 0, fmt.Errorf("read want of %s: %w", key, err)
	}
	w, err := DecodeWant(key, m.Data)
	return w, m.Sequence, err
}

// LastMessage returns the last message on a subject by one direct get (ADR-31), to which any
// replica of the stream may respond. The error wraps ErrNoMessage, or jetstream.ErrStreamNotFound.
func (c *Client) LastMessage(ctx context.Context, stream, subject string) (Message, error) {
	return c.get(ctx, c.directGet()+stream+"."+subject, nil)
}

// MessageAt returns the message with that sequence, like LastMessage.
func (c *Client) MessageAt(ctx context.Context, stream string, sequence uint64) (Message, error) {
	return c.request(ctx, stream, map[string]any{"seq": sequence})
}

func (c *Client) request(ctx context.Context, stream string, request map[string]any) (Message, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return Message{}, err
	}
	return c.get(ctx, c.directGet()+stream, data)
}

// get reads one message by a direct get. The error wraps ErrNoMessage, or
// jetstream.ErrStreamNotFound.
func (c *Client) get(ctx context.Context, subject string, request []byte) (Message, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, err := c.js.Conn().RequestWithContext(ctx, subject, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Message{}, jetstream.ErrStreamNotFound
	case err != nil && ctx.Err() != nil:
		return Message{}, context.Cause(ctx)
	case err != nil:
		return Message{}, err
	}
	return parseDirect(m)
}

// FiresAt returns when the timer in a message fires. The error wraps ErrMalformed.
func FiresAt(m Message) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(m.Header.Get(jetstream.ScheduleHeader), "@at "))
	if err != nil {
		return time.Time{}, fmt.Errorf("read timer %d: %w: when it fires", m.Sequence, ErrMalformed)
	}
	return at, nil
}

// OldestWant returns when the oldest request for a fetch at or after a sequence was stored. The error
// wraps ErrNoMessage if there is none.
func (c *Client) OldestWant(ctx context.Context, from uint64) (at time.Time, err error) {
	none := true
	for _, kind := range []Kind{KindWant, KindDue} {
		m, err := c.request(ctx, Requests, map[string]any{"seq": from, "next_by_subj": kind.All()})
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

// Progress is how far a stream was read.
type Progress struct {
	// Last is the last sequence of the stream. All messages up to Delivered were delivered, and those up
	// to Acknowledged were also acknowledged.
	Last, Delivered, Acknowledged uint64
}

// Progress returns the progress of a consumer. Without it, all messages count as delivered.
func (c *Client) Progress(ctx context.Context, name, durable string) (p Progress, err error) {
	stream, err := c.js.Stream(ctx, name)
	if err != nil {
		return p, fmt.Errorf("look up stream %s: %w", name, err)
	}
	p.Last = stream.CachedInfo().State.LastSeq
	p.Delivered, p.Acknowledged = p.Last, p.Last
	consumer, err := stream.Consumer(ctx, durable)
	if err != nil {
		return p, fmt.Errorf("look up consumer %s: %w", durable, err)
	}
	info := consumer.CachedInfo()
	if info.NumPending > 0 {
		p.Delivered, p.Acknowledged = info.Delivered.Stream, info.Delivered.Stream
	}
	if info.NumAckPending > 0 {
		p.Acknowledged = info.AckFloor.Stream
	}
	return p, nil
}

// DefaultAPIPrefix is the prefix of the JetStream API subjects (ADR-19) outside of a domain.
const DefaultAPIPrefix = "$JS.API."

// APIPrefix returns the client's prefix of JetStream API subjects, with the final dot. Each domain
// has its own.
func (c *Client) APIPrefix() string {
	switch o := c.js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return DefaultAPIPrefix
}

// directGet is the subject for direct gets from a stream (ADR-31).
func (c *Client) directGet() string { return c.APIPrefix() + "DIRECT.GET." }

// bounded adds a timeout to ctx if it has none, because a response that was lost with a connection
// never arrives.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, responseTimeout)
}

const responseTimeout = 5 * time.Second

// DecodeWant decodes the payload of a want. A tombstone is nil. The want must be for the key in its
// subject. Errors wrap ErrMalformed.
func DecodeWant(key Key, data []byte) (*v1.Want, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // a tombstone is no error
	}
	return decode(key, data, new(v1.Want), func(w *v1.Want) *v1.Want { return w })
}

// DecodeDue decodes the payload of a due. Errors wrap ErrMalformed.
func DecodeDue(key Key, data []byte) (*v1.Due, error) {
	return decode(key, data, new(v1.Due), (*v1.Due).GetWant)
}

// DecodeResult decodes the payload of a result. Errors wrap ErrMalformed.
func DecodeResult(key Key, data []byte) (*v1.Result, error) {
	return decode(key, data, new(v1.Result), (*v1.Result).GetWant)
}

func decode[M proto.Message](key Key, data []byte, into M, want func(M) *v1.Want) (decoded M, err error) {
	if err := proto.Unmarshal(data, into); err != nil {
		return decoded, fmt.Errorf("decode message for %s: %w (%w)", key, ErrMalformed, err)
	}
	if w := want(into); w == nil || KeyOf(w) != key || w.GetUrl() == "" && w.GetUid() == "" {
		return decoded, fmt.Errorf("decode message for %s: %w: it is for another key", key, ErrMalformed)
	}
	return into, nil
}

// LoadWants calls each with the last message of every want subject, tombstones included, in stream
// order.
//
// It uses direct gets, because an identity that may create a consumer can make the server publish
// to any subject of its account. If the server fails, LoadWants continues with another one.
func (c *Client) LoadWants(ctx context.Context, each func(Message) error) error {
	rest := Range{Stream: Requests, Subject: KindWant.All()}
	for {
		err := c.loadRest(ctx, &rest, each)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errNoResponse) {
			return err
		}
	}
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

// loadRest reads from the start of rest, and advances it.
func (c *Client) loadRest(ctx context.Context, rest *Range, each func(Message) error) error {
	for m, err := range c.Scan(ctx, *rest) {
		if err != nil {
			return err
		}
		rest.From = m.Sequence + 1
		if err := each(m); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("read %s: %w", rest.Subject, err)
		}
	}
	return nil
}
