// Package operate is the client for operators: it reads wants, timers, failures and ConfigMaps, pauses fetching, and
// pins keys.
package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Client is safe for concurrent use. It skips unreadable messages of a stream and counts them in Unread,
// because one malformed message must not hide all others.
type Client struct {
	*pipeline.Client
	Unread *Unread
}

// NewClient returns a client on a JetStream context.
func NewClient(js jetstream.JetStream) *Client {
	return &Client{Client: pipeline.NewClient(js), Unread: new(Unread)}
}

// Counting returns the same client with its own counter.
func (c *Client) Counting() *Client { return &Client{Client: c.Client, Unread: new(Unread)} }

// Unread counts skipped messages. It is safe for concurrent use.
type Unread struct {
	mu       sync.Mutex
	messages int
	first    error
}

func (u *Unread) add(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.messages++; u.first == nil {
		u.first = err
	}
}

// Count returns the number of skipped messages, and the error of the first one.
func (u *Unread) Count() (messages int, first error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.messages, u.first
}

// decoded decodes messages, without unreadable ones. Another error ends the iteration.
func decoded[T any](
	c *Client, messages iter.Seq2[pipeline.Message, error], decode func(pipeline.Message) (T, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for m, err := range messages {
			var item T
			if err == nil {
				item, err = decode(m)
			}
			if err != nil && pipeline.Unreadable(err) {
				c.Unread.add(err)
				continue
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// ErrNoConsumer means that a durable consumer does not exist.
var ErrNoConsumer = errors.New("not found")

// Consumer returns a durable consumer of a stream. Errors wrap ErrNoConsumer, or jetstream.ErrStreamNotFound.
func Consumer(ctx context.Context, stream jetstream.Stream, name string) (*jetstream.ConsumerInfo, error) {
	consumer, err := stream.Consumer(ctx, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("consumer %s of stream %s (`curlctl setup` creates it): %w",
			name, stream.CachedInfo().Config.Name, ErrNoConsumer)
	}
	if err != nil {
		return nil, err
	}
	return consumer.CachedInfo(), nil
}

// Handled returns the sequence up to which the fetchers have handled all requests (0: there is no consumer).
func (c *Client) Handled(ctx context.Context) (uint64, error) {
	fetchers, err := c.Fetchers(ctx)
	switch {
	case errors.Is(err, ErrNoConsumer):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return fetchers.AckFloor.Stream, nil
}

// Fetchers returns the consumer that the fetchers share, or an error of Consumer.
func (c *Client) Fetchers(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	stream, err := c.Stream(ctx, pipeline.Requests)
	if err != nil {
		return nil, err
	}
	return Consumer(ctx, stream, pipeline.FetcherConsumer)
}

// Forever is the length of an unlimited pause, since JetStream needs an end.
const Forever = 100 * 365 * 24 * time.Hour

// Resumes returns the end of a pause (nil: it is unlimited, or there is none).
func Resumes(info *jetstream.ConsumerInfo) *time.Time {
	if until := info.Config.PauseUntil; info.Paused && until != nil && time.Until(*until) < Forever/2 {
		return until
	}
	return nil
}

// PauseFetching pauses the delivery of requests to all fetchers until a time, without loss. It needs the
// permission to publish $JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher.
func (c *Client) PauseFetching(ctx context.Context, until time.Time) error {
	if _, err := c.JetStream().PauseConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer, until); err != nil {
		return fmt.Errorf("pause consumer %s of stream %s: %w", pipeline.FetcherConsumer, pipeline.Requests, err)
	}
	return nil
}

// ResumeFetching ends the pause. It needs the same permission.
func (c *Client) ResumeFetching(ctx context.Context) error {
	if _, err := c.JetStream().ResumeConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer); err != nil {
		return fmt.Errorf("resume consumer %s of stream %s: %w", pipeline.FetcherConsumer, pipeline.Requests, err)
	}
	return nil
}

// Stream looks up a stream. Errors wrap jetstream.ErrStreamNotFound, or others of NATS.
func (c *Client) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := c.JetStream().Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	return stream, nil
}

// A stream is read backwards in windows of windowFirst to windowMax sequences, with about windowMessages messages each.
const (
	windowFirst    = 64
	windowMax      = 1 << 16
	windowMessages = 256
)

// backwards reads messages of a stream, newest first, and buffers a few hundred at a time. It stops at the
// first error.
func (c *Client) backwards(ctx context.Context, r pipeline.Range) iter.Seq2[pipeline.Message, error] {
	return func(yield func(pipeline.Message, error) bool) {
		stream, err := c.Stream(ctx, r.Stream)
		if err != nil {
			yield(pipeline.Message{}, err)
			return
		}
		state := stream.CachedInfo().State
		top, bound := state.LastSeq+1, max(state.FirstSeq, 1)
		if r.Below > 0 {
			top = min(top, r.Below)
		}
		for span := uint64(windowFirst); top > bound; {
			r.From, r.Below = bound, top
			if top-bound > span {
				r.From = top - span
			}
			var window []pipeline.Message
			for m, err := range c.Scan(ctx, r) {
				if err != nil {
					yield(m, err)
					return
				}
				window = append(window, m)
			}
			for _, m := range slices.Backward(window) {
				if !yield(m, nil) {
					return
				}
			}
			span = min(max(span*windowMessages/uint64(max(len(window), 1)), windowFirst), windowMax)
			top = r.From
		}
	}
}

// NextFetch is the next fetch of a key: a timer, or a due, which a timer or a replay has published.
type NextFetch struct {
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when the timer fires, and SetAt when it was set. For a due, both are its publish time.
	At, SetAt time.Time
	// Fired means that no timer has to fire for it.
	Fired bool
	// Due is published when the timer fires.
	Due *v1.Due
	// URL of the want, which may hold secrets.
	URL string
}

// PendingTimer returns the pending timer of a key. The error wraps ErrNoMessage if there is none.
func (c *Client) PendingTimer(ctx context.Context, key pipeline.Key) (NextFetch, error) {
	m, err := c.LastMessage(ctx, pipeline.Requests, key.TimerSubject())
	if err != nil {
		return NextFetch{}, fmt.Errorf("read timer of %s: %w", key, err)
	}
	return nextFetch(m)
}

// Timers reads the pending timers of a namespace and name; empty: all.
func (c *Client) Timers(ctx context.Context, namespace, name string) iter.Seq2[NextFetch, error] {
	return decoded(c, c.requests(ctx, pipeline.KindTimer.Subjects(namespace, name), 0), nextFetch)
}

// nextFetch decodes a timer or a due.
func nextFetch(m pipeline.Message) (NextFetch, error) {
	kind, key, err := pipeline.ParseSubject(m.Subject)
	if err != nil {
		return NextFetch{}, err
	}
	at := m.Time
	if kind == pipeline.KindTimer {
		if at, err = pipeline.FiresAt(m); err != nil {
			return NextFetch{}, err
		}
	}
	due, err := pipeline.DecodeDue(key, m.Data)
	return NextFetch{
		Key: key, Sequence: m.Sequence, At: at, SetAt: m.Time, Fired: kind == pipeline.KindDue, Due: due,
		URL: due.GetWant().GetUrl(),
	}, err
}

// Reason returns why the last attempt failed, as in Events (empty: it did not fail).
func (n NextFetch) Reason() string {
	if n.Due.GetReported() == failure.Unspecified {
		return ""
	}
	return failure.Reason(n.Due.GetReported())
}

// Dues reads fired timers and replays from a sequence on, like Timers.
func (c *Client) Dues(ctx context.Context, namespace, name string, from uint64) iter.Seq2[NextFetch, error] {
	return decoded(c, c.requests(ctx, pipeline.KindDue.Subjects(namespace, name), from), nextFetch)
}

// StoredWant is a want as stored in the stream.
type StoredWant struct {
	Key pipeline.Key
	// Sequence in the stream.
	Sequence uint64
	// At is when it was published, if it was read from a list.
	At   time.Time
	Want *v1.Want
}

// Wanted returns the want of a key. A StoredWant without a Sequence means that the key is not wanted. The
// error wraps pipeline.ErrMalformed if the want cannot be decoded.
func (c *Client) Wanted(ctx context.Context, key pipeline.Key) (StoredWant, error) {
	want, sequence, err := c.LastWant(ctx, key)
	if errors.Is(err, pipeline.ErrNoMessage) || err == nil && want == nil {
		return StoredWant{}, nil
	}
	return StoredWant{Key: key, Sequence: sequence, Want: want}, err
}

// Wants reads the wants of a namespace and name, without tombstones; empty: all.
func (c *Client) Wants(ctx context.Context, namespace, name string) iter.Seq2[StoredWant, error] {
	all := decoded(c, c.requests(ctx, pipeline.KindWant.Subjects(namespace, name), 0), want)
	return func(yield func(StoredWant, error) bool) {
		for w, err := range all {
			if tombstone := err == nil && w.Want == nil; !tombstone && !yield(w, err) {
				return
			}
		}
	}
}

// requestsAtOnce is the number of keys whose requests are read at once, which limits memory.
const requestsAtOnce = pipeline.MaxLastMessages / 3

// Requests visits each of the given keys that is wanted, with its next fetch, or the last one that was due.
func (c *Client) Requests(ctx context.Context, keys []pipeline.Key, visit func(StoredWant, NextFetch)) error {
	for some := range slices.Chunk(keys, requestsAtOnce) {
		var subjects []string
		for _, key := range some { // the timer before the due: if it fires meanwhile, the due exists already
			subjects = append(subjects, key.WantSubject(), key.TimerSubject(), key.DueSubject())
		}
		last, err := c.LastMessages(ctx, subjects)
		if err != nil {
			return err
		}
		for _, key := range some {
			w, err := want(last[key.WantSubject()])
			next, none := nextFetch(last[key.TimerSubject()])
			if none != nil {
				next, _ = nextFetch(last[key.DueSubject()])
			}
			if err == nil && w.Want != nil {
				visit(w, next)
			}
		}
	}
	return nil
}

func want(m pipeline.Message) (w StoredWant, err error) {
	w = StoredWant{Sequence: m.Sequence, At: m.Time}
	if _, w.Key, err = pipeline.ParseSubject(m.Subject); err == nil {
		w.Want, err = pipeline.DecodeWant(w.Key, m.Data)
	}
	return w, err
}

// requests reads the messages of a subject from a sequence on.
func (c *Client) requests(ctx context.Context, subject string, from uint64) iter.Seq2[pipeline.Message, error] {
	return c.Scan(ctx, pipeline.Range{Stream: pipeline.Requests, Subject: subject, From: from})
}
