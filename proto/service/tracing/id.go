package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
)

// delivery is one delivery of a message. The id of its span is derived from it,
// so that the next process to get the message knows the id of the attempt before,
// though that was perhaps in a process that is gone.
type delivery struct {
	stream   string
	sequence uint64
	stored   time.Time
	number   uint64
}

// deliveryOf returns the delivery of a message; false: it is none of JetStream.
func deliveryOf(m Message) (delivery, bool) {
	meta, err := m.Metadata()
	if err != nil {
		return delivery{}, false
	}
	return delivery{stream: meta.Stream, sequence: meta.Sequence.Stream, stored: meta.Timestamp, number: meta.NumDelivered}, true
}

// before is the delivery before.
func (d delivery) before() delivery {
	d.number--
	return d
}

func (d delivery) span() trace.SpanID {
	digest := d.digest()
	return trace.SpanID(digest[:8])
}

// trace is that of a message which carries no trace context: the same for all
// its deliveries.
func (d delivery) trace() trace.TraceID {
	d.number = 0
	digest := d.digest()
	return trace.TraceID(digest[8:24])
}

func (d delivery) digest() [sha256.Size]byte {
	text := binary.BigEndian.AppendUint64(nil, d.sequence)
	text = binary.BigEndian.AppendUint64(text, uint64(d.stored.UnixNano()))
	text = binary.BigEndian.AppendUint64(text, d.number)
	return sha256.Sum256(append(text, d.stream...))
}

// markKey is where a context holds a mark.
type markKey struct{}

// mark names the delivery that the next span is made for. The span's own
// children have the mark, too, and find it taken.
type mark struct{ delivery *delivery }

// take returns the delivery that a context is marked with, once.
func take(ctx context.Context) *delivery {
	m, ok := ctx.Value(markKey{}).(*mark)
	if !ok || m.delivery == nil {
		return nil
	}
	d := m.delivery
	m.delivery = nil
	return d
}

// ids makes the ids of spans: those of deliveries derived, others at random.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if d := take(ctx); d != nil {
		return d.trace(), d.span()
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], nonzero())
	return id, randomSpan()
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if d := take(ctx); d != nil {
		return d.span()
	}
	return randomSpan()
}

func randomSpan() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], nonzero())
	return id
}

// nonzero returns a random number other than zero, which no id may be.
func nonzero() uint64 { return max(rand.Uint64(), 1) }

// Message is what a span needs of a message; a jetstream.Msg and a
// pipeline.Delivery both have it.
type Message interface {
	Subject() string
	Data() []byte
	Headers() nats.Header
	Metadata() (*jetstream.MsgMetadata, error)
}
