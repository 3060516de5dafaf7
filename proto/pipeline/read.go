package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// directGet is the subject for direct gets from a stream (ADR-31).
func (c *Client) directGet() string { return c.APIPrefix() + "DIRECT.GET." }

func decode[M proto.Message](key Key, data []byte, into M, want func(M) *v1.Want) (decoded M, err error) {
	if err := proto.Unmarshal(data, into); err != nil {
		return decoded, fmt.Errorf("decode message for %s: %w (%w)", key, ErrMalformed, err)
	}
	if w := want(into); w == nil || KeyOf(w) != key || w.GetUrl() == "" && w.GetUid() == "" {
		return decoded, fmt.Errorf("decode message for %s: %w: it is for another key", key, ErrMalformed)
	}
	return into, nil
}

// Message is a stored message of a stream.
type Message struct {
	Subject  string
	Sequence uint64
	// Time at which the message was stored.
	Time time.Time
	// Header includes the headers that the server added.
	Header nats.Header
	Data   []byte
}

// parseDirect parses the response to a direct get. The error wraps ErrNoMessage.
func parseDirect(m *nats.Msg) (Message, error) {
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return Message{}, ErrNoMessage
	default:
		return Message{}, fmt.Errorf("server responded %s %s", status, m.Header.Get("Description"))
	}
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("sequence of a stored message: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return Message{}, fmt.Errorf("time of a stored message: %w", err)
	}
	return Message{
		Subject: m.Header.Get(jetstream.SubjectHeader), Sequence: sequence, Time: at, Header: m.Header, Data: m.Data,
	}, nil
}
