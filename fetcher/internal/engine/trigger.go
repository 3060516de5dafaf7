package engine

import (
	"fmt"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// trigger is a message that requests a fetch, with the state of its key.
type trigger struct {
	kind pipeline.Kind
	key  pipeline.Key
	// sequence of the message, or of the claim of a waiting key.
	sequence uint64
	// storedAt is the time at which the stream took the message.
	storedAt time.Time
	// deliveries counts the deliveries of the message. backlog reports whether more messages wait
	// behind it.
	deliveries uint64
	backlog    bool
	// claimed reports whether the key has waited. Its timer is the claim until the
	// outcome is published.
	claimed bool
	// began is the start of the handling.
	began time.Time
	// span of the handling. origin is the trace context of a retry: the message's, or the span's
	// without one.
	span   trace.Span
	origin trace.SpanContext
	// slot of its own GET. Nil means none.
	slot *throttle.Slot
	// gotResponse reports whether a GET succeeded.
	gotResponse bool

	// want of the key. Nil means none.
	want *v1.Want
	// readFirst reports that the object has changed since the want was published, possibly by our
	// own write. The writer must read it first. The want itself stays as it was signed.
	readFirst bool
	// wantSequence is the sequence of the want in the stream.
	wantSequence uint64
	cause        v1.Cause
	history
}

// history is the state that a due carries from one attempt to the next.
type history struct {
	// attempts that have failed in this round.
	attempts uint32
	// firstFailed is the start of the failures. Zero means none.
	firstFailed time.Time
	// reported is the last published failure class, and withheld one that was not published yet.
	reported, withheld v1.FailureClass
	// reportedAt is the time of that. Zero means never or unknown.
	reportedAt time.Time
	// gaveUp reports that a round of attempts was given up since firstFailed.
	gaveUp bool
	// statusCode is the HTTP status of the last failed attempt. Zero means none.
	statusCode int32
	// detail of the last failed attempt.
	detail v1.FailureDetail
	// cached is the current body of the key. Nil means unknown.
	cached *v1.Cached
	// freshUntil is the scheduled time of the fetch after the last good one. Zero means none.
	freshUntil time.Time
	replayOf   uint64
	// waitsFor and waitingSince are the reason and the start of waiting for a slot. Zero means that
	// it does not wait.
	waitsFor     v1.WaitsFor
	waitingSince time.Time
	// unended counts claims in a row without an end.
	unended uint64
	// earlier is the span of the previous attempt or failure.
	earlier trace.SpanContext
}

// decode parses a message. With an error, which wraps pipeline.ErrMalformed or pipeline.ErrSubject,
// the trigger has the readable fields.
func (e *Engine) decode(d *pipeline.Delivery) (*trigger, error) {
	e.deps.Clock.Observe(d.StoredAt())
	t := &trigger{
		sequence: d.Sequence(), storedAt: d.StoredAt(), deliveries: d.Number(), backlog: d.Backlog(),
		began: e.deps.Clock.Now(),
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
		err = fmt.Errorf("%w: %q asks for no fetch", pipeline.ErrSubject, d.Subject())
	}
	return t, err
}

// take reads a due. Its want is old and has no status, so the writer must read first.
func (t *trigger) take(due *v1.Due) {
	t.readFirst = true
	t.want, t.wantSequence, t.cause = due.GetWant(), due.GetWantSequence(), due.GetCause()
	t.waitsFor, t.unended = due.GetWaitsFor(), due.GetUnended()
	t.attempts, t.reported, t.statusCode = due.GetAttempts(), due.GetReported(), due.GetStatusCode()
	t.detail = due.GetDetail()
	if due.GetWithheld() {
		t.reported, t.withheld = v1.FailureClass_FAILURE_CLASS_UNSPECIFIED, due.GetReported()
	}
	t.cached, t.replayOf, t.gaveUp = due.GetCached(), due.GetReplayOf(), due.GetGaveUp()
	t.earlier = pipeline.ParseTraceparent(due.GetEarlier())
	if due.GetWaitingSince() != nil {
		t.waitingSince = due.GetWaitingSince().AsTime()
	}
	if due.GetFreshUntil() != nil {
		t.freshUntil = due.GetFreshUntil().AsTime()
	}
	if due.GetReportedAt() != nil {
		t.reportedAt = due.GetReportedAt().AsTime()
	}
	if due.GetFirstFailedAt() != nil {
		t.firstFailed = due.GetFirstFailedAt().AsTime()
	}
}

func (t *trigger) tombstone() bool { return t.kind == pipeline.KindWant && t.want == nil }

// untried reports whether the message repeats a want without an attempt.
func (t *trigger) untried() bool {
	return t.cause == v1.Cause_CAUSE_PARKED && t.attempts == 0 && t.firstFailed.IsZero() && t.cached == nil
}

// overtaken reports whether others may have worked on the key since the message was first
// delivered. Then the writer may drop the outcome of an older trigger, so nothing may rely on it.
func (t *trigger) overtaken(now time.Time) bool {
	return t.deliveries > 1 || now.Sub(t.began) > pipeline.AckWait
}

// due returns the timer's payload.
func (t *trigger) due(cause v1.Cause) *v1.Due {
	due := &v1.Due{
		Want:         slim(t.want),
		WantSequence: t.wantSequence,
		Cause:        cause,
		Attempts:     t.attempts,
		Reported:     t.reported,
		StatusCode:   t.statusCode,
		Detail:       t.detail,
		Cached:       t.cached,
		ReplayOf:     t.replayOf,
		Earlier:      t.traceparent(),
		GaveUp:       t.gaveUp,
	}
	if t.withheld != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		due.Reported, due.Withheld = t.withheld, true
	}
	if !t.freshUntil.IsZero() {
		due.FreshUntil = timestamppb.New(t.freshUntil)
	}
	if !t.reportedAt.IsZero() {
		due.ReportedAt = timestamppb.New(t.reportedAt)
	}
	if !t.firstFailed.IsZero() {
		due.FirstFailedAt = timestamppb.New(t.firstFailed)
	}
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
