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

// Handler does what a message asks for and decides what becomes of it.
type Handler func(context.Context, *Delivery) Disposition

// Delivery is one delivery of a message. It can be read, and not acknowledged:
// that is for Consume.
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
	} else { // no message of JetStream
		d.metadata.NumDelivered = 1
	}
	return d
}

// Subject that the message was published to.
func (d *Delivery) Subject() string { return d.message.Subject() }

// Data is the payload.
func (d *Delivery) Data() []byte { return d.message.Data() }

// Headers of the message.
func (d *Delivery) Headers() nats.Header { return d.message.Headers() }

// Metadata that the server sends with the message.
func (d *Delivery) Metadata() (*jetstream.MsgMetadata, error) { return d.message.Metadata() }

// Sequence in the stream.
func (d *Delivery) Sequence() uint64 { return d.metadata.Sequence.Stream }

// StoredAt is when the stream took the message, on the clock of the server.
func (d *Delivery) StoredAt() time.Time { return d.metadata.Timestamp }

// Number counts the deliveries of the message, from 1; also those that were
// given back, and those that waited in the buffer of a process that ended. It
// is not how often the message was handled.
func (d *Delivery) Number() uint64 { return d.metadata.NumDelivered }

// Backlog reports whether more messages wait behind this one at the server.
func (d *Delivery) Backlog() bool { return d.metadata.NumPending > 0 }

// Draining is closed when Consume is to end. A handler may go on, since its
// context is not cancelled by that; one that would wait for long returns
// GiveBack.
func (d *Delivery) Draining() <-chan struct{} { return d.draining }

// SetTrace sets the span of the handling, which a dead letter refers to.
func (d *Delivery) SetTrace(span trace.SpanContext) { d.span = span }

const (
	backoffFirst = time.Second
	// backoffMax bounds the delay of a message that is given back without one.
	backoffMax = 2 * time.Minute
)

// Backoff returns a delay that doubles with each delivery, from a second to
// longest, with jitter of a fifth either way.
func (d *Delivery) Backoff(longest time.Duration) time.Duration {
	delay := longest
	if n := max(d.Number(), 1); n < 16 {
		delay = min(backoffFirst<<(n-1), longest)
	}
	return delay - delay/5 + rand.N(2*delay/5+1)
}

// id names the message among all that were ever stored.
func (d *Delivery) id() string {
	return fmt.Sprintf("%s.%d.%d", d.metadata.Stream, d.Sequence(), d.StoredAt().UnixNano())
}
