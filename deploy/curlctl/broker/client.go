// Package broker is the client of NATS for operators: it connects with the rights of the user and says what these are,
// reads wants, timers and dead letters, and pauses fetching.
package broker

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

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

// Stream looks up a stream. Errors wrap jetstream.ErrStreamNotFound, or others of NATS.
func (c *Client) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := c.JetStream().Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	return stream, nil
}
