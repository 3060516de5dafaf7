package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
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

// bounded adds a timeout to ctx if it has none, because a response that was lost with a connection
// never arrives.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, responseTimeout)
}

const responseTimeout = 5 * time.Second

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

// whileWanted makes a publish fail unless the want of the key still has that sequence.
func whileWanted(key Key, want uint64) jetstream.PublishOpt {
	return jetstream.WithExpectLastSequenceForSubject(want, key.WantSubject())
}
