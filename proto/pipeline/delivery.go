package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
)

// Handler handles a message and returns its disposition.
type Handler func(context.Context, *Delivery) Disposition

// Delivery is one delivery of a message. Only Consume can acknowledge it.
type Delivery struct {
	message  jetstream.Msg
	metadata jetstream.MsgMetadata
	draining <-chan struct{}
	span     trace.SpanContext
}

func newDelivery(m jetstream.Msg, draining <-chan struct{}) *Delivery {
	d := &Delivery{message: m, draining: draining}
	if metadata, err := m.Metadata(); err == nil {
		d.metadata = *metadata
	} else { // not a message of JetStream
		d.metadata.NumDelivered = 1
	}
	return d
}

// Subject returns the subject that the message was published to.
func (d *Delivery) Subject() string { return d.message.Subject() }

// Data returns the payload.
func (d *Delivery) Data() []byte { return d.message.Data() }

// Headers returns the headers of the message.
func (d *Delivery) Headers() nats.Header { return d.message.Headers() }

// Sequence returns the sequence in the stream.
func (d *Delivery) Sequence() uint64 { return d.metadata.Sequence.Stream }

// StoredAt returns when the message was stored, on the server's clock.
func (d *Delivery) StoredAt() time.Time { return d.metadata.Timestamp }

// Number counts the deliveries of the message, from 1, including those that were returned and those
// that waited in the buffer of a process that ended. It is not the number of handlings.
func (d *Delivery) Number() uint64 { return d.metadata.NumDelivered }

// Backlog reports whether more messages wait at the server.
func (d *Delivery) Backlog() bool { return d.metadata.NumPending > 0 }

// Draining is closed when Consume is about to end. The context stays active, so a handler may
// finish. A handler that would wait for long returns GiveBack.
func (d *Delivery) Draining() <-chan struct{} { return d.draining }

// SetTrace sets the span of the handling. A dead letter refers to it.
func (d *Delivery) SetTrace(span trace.SpanContext) { d.span = span }

const (
	backoffFirst = time.Second
	// backoffMax is the maximum delay of a message that is retried without a given delay.
	backoffMax = 2 * time.Minute
)

// Backoff returns a delay that doubles with each delivery, from a second up to longest, with 20 %
// jitter.
func (d *Delivery) Backoff(longest time.Duration) time.Duration {
	delay := longest
	if n := max(d.Number(), 1); n < 16 {
		delay = min(backoffFirst<<(n-1), longest)
	}
	return delay - delay/5 + rand.N(2*delay/5+1)
}

// id is unique among all messages ever stored.
func (d *Delivery) id() string {
	return fmt.Sprintf("%s.%d.%d", d.metadata.Stream, d.Sequence(), d.StoredAt().UnixNano())
}
