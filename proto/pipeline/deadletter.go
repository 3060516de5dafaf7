package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

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

// maxDeadLetterPayload is the maximum number of bytes of a message in its dead letter. A larger want
// is left out.
const maxDeadLetterPayload = 64 << 10

// MaxSnippet is the maximum size of the start of a response in a dead letter, in bytes.
const MaxSnippet = 1 << 10

// deadLetter returns the dead letter for a message that cannot be handled, and the key in its
// subject. It has the time of the message, so a wrong clock on this machine does no harm.
func (d *Delivery) deadLetter(why error) (Key, *v1.DeadLetter) {
	kind, key, _ := ParseSubject(d.Subject()) // on error, the key is empty
	at := timestamppb.New(d.StoredAt())
	letter := &v1.DeadLetter{
		Failure: &v1.Failure{Class: FailureClass(why), Attempts: 1, FirstFailedAt: at, GaveUp: true}, LastFailedAt: at,
		Sequence: d.Sequence(), Subject: d.Subject(), Traceparent: Traceparent(d.span),
	}
	if kind != KindContent { // a body that only some may see
		letter.Payload = d.Data()[:min(len(d.Data()), maxDeadLetterPayload)]
	}
	if classed, ok := errors.AsType[*ClassError](why); ok {
		letter.Snippet = classed.Snippet
	}
	want, sequence := wantIn(kind, key, d.Data())
	if want == nil {
		return key, letter
	}
	want.Status = ""
	if proto.Size(want) > maxDeadLetterPayload {
		return key, letter
	}
	letter.Want, letter.Failure.Host = want, weburl.HostOf(want.GetUrl())
	if sequence > 0 {
		letter.Sequence = sequence
	}
	return key, letter
}

// wantIn returns the want in a message, as far as it can be decoded, and the sequence of the trigger if the message is
// a result.
func wantIn(kind Kind, key Key, data []byte) (want *v1.Want, sequence uint64) {
	switch kind {
	case KindWant:
		want, _ = DecodeWant(key, data)
	case KindDue:
		due, _ := DecodeDue(key, data)
		want = due.GetWant()
	case KindContent, KindFailure, KindSync:
		result, _ := DecodeResult(key, data)
		want, sequence = result.GetWant(), result.GetSequence()
	case KindTimer, KindVersion:
		// Consumers never receive them: the server publishes a due instead of a timer.
	}
	return want, sequence
}

// ClassError gives an error a failure class other than Malformed.
type ClassError struct {
	Class v1.FailureClass
	Err   error
	// Snippet is the start of the body for the dead letter, at most MaxSnippet bytes.
	Snippet []byte
}

// Error returns the text of Err.
func (c *ClassError) Error() string { return c.Err.Error() }

// Unwrap returns Err.
func (c *ClassError) Unwrap() error { return c.Err }

// FailureClass returns the failure class for a message that cannot be handled because of err.
func FailureClass(err error) v1.FailureClass {
	if classed, ok := errors.AsType[*ClassError](err); ok {
		return classed.Class
	}
	return failure.Malformed
}

// publishDeadLetter publishes the dead letter of a message, and returns the resulting disposition.
func (c *Consumer) publishDeadLetter(ctx context.Context, d *Delivery, disposition Disposition) Disposition {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), responseTimeout)
	defer cancel()
	key, deadLetter := d.deadLetter(disposition.err)
	err := c.client.PublishDeadLetter(ctx, key, deadLetter, d.id())
	if errors.Is(err, ErrTooLarge) { // the reason matters more than the payload
		deadLetter.Payload, deadLetter.Want = nil, nil
		err = c.client.PublishDeadLetter(ctx, key, deadLetter, d.id())
	}
	if err != nil {
		return Disposition{action: actionRetry, after: d.Backoff(deadLetterBackoffMax), err: err}
	}
	return disposition
}

// deadLetterBackoffMax is the maximum delay before a message is handled again because its dead
// letter could not be published.
const deadLetterBackoffMax = 8 * time.Second
