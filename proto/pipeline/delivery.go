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

// NumDelivered is the number of this delivery, from 1. Handlers may have seen fewer: a message may be returned, or
// its process may end first.
func (d *Delivery) NumDelivered() uint64 { return d.metadata.NumDelivered }

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
	if n := max(d.NumDelivered(), 1); n < 16 {
		delay = min(backoffFirst<<(n-1), longest)
	}
	return delay - delay/5 + rand.N(2*delay/5+1)
}

// id is unique among all messages ever stored.
func (d *Delivery) id() string {
	return fmt.Sprintf("%s.%d.%d", d.metadata.Stream, d.Sequence(), d.StoredAt().UnixNano())
}

// Disposition tells what happens to a message. The zero value retries it with a growing delay, so
// that a handler that forgets to decide loses nothing.
type Disposition struct {
	action action
	after  time.Duration
	err    error
	stack  []byte
}

// action is the kind of a disposition.
type action string

const (
	actionRetry      action = "retry"
	actionAck        action = "ack"
	actionGiveBack   action = "give_back"
	actionDeadLetter action = "dead_letter"
)

// Ack ends a message: its work is done, or recorded elsewhere, such as in a timer.
func Ack() Disposition { return Disposition{action: actionAck} }

// Retry asks the server to deliver the message again after a delay. Without a positive delay, the
// delay grows with each delivery, because the server would deliver in a tight loop. Meanwhile the
// message counts against MaxAckPending. A failure of the message's own work should therefore be
// rescheduled by a timer and acknowledged.
func Retry(after time.Duration) Disposition {
	return Disposition{action: actionRetry, after: after}
}

// GiveBack returns a message at once, for another process: this one is ending, and the work has not
// begun or can be repeated.
func GiveBack() Disposition { return Disposition{action: actionGiveBack} }

// DeadLetter stores a message with the reason why it cannot be handled, and ends it. The failure
// class comes from a ClassError in the chain of err, or is Malformed. If the dead letter cannot be
// stored, the message is retried.
func DeadLetter(err error) Disposition { return Disposition{action: actionDeadLetter, err: err} }

// String returns the name of a disposition in logs and metric labels.
func (d Disposition) String() string {
	if d.action == "" {
		return string(actionRetry)
	}
	return string(d.action)
}

// IsDeadLetter reports whether a message becomes a dead letter.
func (d Disposition) IsDeadLetter() bool { return d.action == actionDeadLetter }

// Err returns the reason of a dead letter, or of a retry that the handler did not ask for;
// otherwise nil.
func (d Disposition) Err() error { return d.err }

// PanicStack returns the stack of the handler's panic, or nil.
func (d Disposition) PanicStack() []byte { return d.stack }

// Dispositions returns the names of all dispositions.
func Dispositions() []string {
	return []string{string(actionAck), string(actionRetry), string(actionGiveBack), string(actionDeadLetter)}
}
