package engine

import (
	"fmt"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// trigger is a message that requests a fetch, with the state of its key.
type trigger struct {
	kind pipeline.Kind
	key  pipeline.Key
	// sequence of the message, or of the claim of a queued key.
	sequence uint64
	// storedAt is the time at which the stream took the message.
	storedAt time.Time
	// deliveries counts the deliveries of the message. backlog reports whether more messages wait
	// behind it.
	deliveries uint64
	backlog    bool
	// claimed reports whether the key was queued. Until its outcome is published, its timer is the
	// claim.
	claimed bool
	// began is the start of the handling.
	began time.Time
	// span of the handling. origin is the trace context of a retry: the message's, or the span's
	// without one.
	span   trace.Span
	origin trace.SpanContext
	// slot of the GET, unless it is that of another trigger. Nil means none.
	slot *throttle.Slot
	// gotResponse reports whether the GET succeeded.
	gotResponse bool

	// want of the key. Nil means none.
	want *v1.Want
	// readFirst reports that the object has changed since the want was published, possibly by our
	// own write. The writer must read it first. The want itself stays as it was signed.
	readFirst bool
	// wantSequence is the sequence of the want in the stream.
	wantSequence uint64
	cause        v1.Cause
	// past is the due with the state of earlier attempts. It is empty for a new want.
	past *v1.Due
}

// decode parses a message. With an error, which wraps pipeline.ErrMalformed or pipeline.ErrSubject,
// the trigger has the readable fields.
func (e *Engine) decode(d *pipeline.Delivery) (*trigger, error) {
	e.deps.Clock.Observe(d.StoredAt())
	t := &trigger{
		sequence: d.Sequence(), storedAt: d.StoredAt(), deliveries: d.Number(), backlog: d.Backlog(),
		began: e.deps.Clock.Now(), past: &v1.Due{},
	}
	var err error
	if t.kind, t.key, err = pipeline.ParseSubject(d.Subject()); err != nil {
		return t, err
	}
	switch t.kind {
	case pipeline.KindWant:
		t.want, err = pipeline.DecodeWant(t.key, d.Data())
		t.wantSequence, t.cause = t.sequence, t.want.GetCause()
	case pipeline.KindDue:
		var due *v1.Due
		if due, err = pipeline.DecodeDue(t.key, d.Data()); err == nil {
			t.take(due)
		}
	default:
		err = fmt.Errorf("%w: %q does not request a fetch", pipeline.ErrSubject, d.Subject())
	}
	return t, err
}

// take reads a due. Its want is old and has no status, so the writer must read first.
func (t *trigger) take(due *v1.Due) {
	t.past, t.readFirst = due, true
	t.want, t.wantSequence, t.cause = due.GetWant(), due.GetWantSequence(), due.GetCause()
	if t.urgent() {
		forgetValidators(due.GetCached())
	}
}

// failing reports whether the last attempt failed.
func (t *trigger) failing() bool { return t.past.GetFirstFailedAt() != nil }

// reported is the last published failure class.
func (t *trigger) reported() v1.FailureClass {
	if t.past.GetWithheld() {
		return v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
	}
	return t.past.GetReported()
}

func (t *trigger) tombstone() bool { return t.kind == pipeline.KindWant && t.want == nil }

// untried reports whether the message repeats a want without an attempt.
func (t *trigger) untried() bool {
	return t.cause == v1.Cause_CAUSE_PARKED && t.past.GetAttempts() == 0 && !t.failing() && t.past.GetCached() == nil
}

// overtaken reports whether others may have worked on the key since the message was first
// delivered. Then the writer may drop the outcome of an older trigger, so nothing may rely on it.
func (t *trigger) overtaken(now time.Time) bool {
	return t.deliveries > 1 || now.Sub(t.began) > pipeline.AckWait
}

// due returns the timer's payload.
func (t *trigger) due(cause v1.Cause) *v1.Due {
	due := proto.CloneOf(t.past)
	due.Want, due.WantSequence, due.Cause, due.Earlier = slim(t.want), t.wantSequence, cause, t.traceparent()
	due.WaitsFor, due.WaitingSince, due.Unended = v1.WaitsFor_WAITS_FOR_UNSPECIFIED, nil, 0
	return due
}

// slimAbove is the size in bytes above which a timer keeps only the identity of a want. The timer
// must stay below pipeline.MaxRequestBytes.
const slimAbove = pipeline.MaxRequestBytes - 8<<10

// slim returns a want for a timer. When the timer has fired, the want itself is read.
func slim(w *v1.Want) *v1.Want {
	w = proto.CloneOf(w)
	w.Status, w.Cached, w.ReadFirst = "", nil, true
	if proto.Size(w) > slimAbove {
		w = &v1.Want{
			Namespace: w.GetNamespace(), Name: w.GetName(), Key: w.GetKey(),
			Uid: w.GetUid(), Url: w.GetUrl(), Refresh: w.GetRefresh(), Epoch: w.GetEpoch(), ReadFirst: true,
		}
	}
	return w
}

// authority returns host and port of a URL, the same for all spellings.
func authority(raw string) string {
	u, err := egress.ParseURL(raw)
	if err != nil {
		return "" // denied without a connection
	}
	return net.JoinHostPort(u.Hostname(), egress.Port(u))
}
