package engine

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// trigger is a decoded message or a claimed key, which requests a fetch. Engine.confirm replaces its want by the one in
// the stream, and nothing else changes it.
type trigger struct {
	kind pipeline.Kind
	key  pipeline.Key
	// sequence of the message, or of the claim of a queued key.
	sequence uint64
	// storedAt is the time at which the stream took the message, and began the start of its handling.
	storedAt, began time.Time
	// deliveries counts the deliveries of the message. backlog reports whether more messages wait behind it.
	deliveries uint64
	backlog    bool

	// want of the key. Nil means none.
	want *v1.Want
	// wantSequence is the sequence of the want in the stream.
	wantSequence uint64
	// readFirst reports that the object has changed since the want was published, possibly by our
	// own write. The writer must read it first.
	readFirst bool
	cause     v1.Cause
	// err is why the message cannot be decoded. It wraps pipeline.ErrMalformed or pipeline.ErrSubject.
	err error
	// due has the state of earlier attempts. It is empty for a new want.
	due *v1.Due
}

// decode parses a message. An unreadable one has only some of the fields.
func (e *Engine) decode(d *pipeline.Delivery) trigger {
	e.deps.Clock.Observe(d.StoredAt())
	t := trigger{
		sequence: d.Sequence(), storedAt: d.StoredAt(), deliveries: d.NumDelivered(), backlog: d.Backlog(),
		began: e.deps.Clock.Now(), due: &v1.Due{},
	}
	if t.kind, t.key, t.err = pipeline.ParseSubject(d.Subject()); t.err != nil {
		return t
	}
	switch t.kind {
	case pipeline.KindWant:
		t.want, t.err = pipeline.DecodeWant(t.key, d.Data())
		t.wantSequence, t.cause = t.sequence, t.want.GetCause()
	case pipeline.KindDue:
		t.err = t.decodeDue(d.Data())
	default:
		t.err = fmt.Errorf("%w: %q does not request a fetch", pipeline.ErrSubject, d.Subject())
	}
	return t
}

// decodeDue reads a due. Its want is old and has no status, so the writer must read first.
func (t *trigger) decodeDue(data []byte) error {
	due, err := pipeline.DecodeDue(t.key, data)
	if err != nil {
		return err
	}
	t.due, t.readFirst = due, true
	t.want, t.wantSequence, t.cause = due.GetWant(), due.GetWantSequence(), due.GetCause()
	if t.urgent() {
		forgetValidators(due.GetCached())
	}
	return nil
}

// replaceWant replaces the want of a due by the one in the stream.
func (t *trigger) replaceWant(want *v1.Want) {
	t.want, t.readFirst = want, !t.untried()
	if !t.readFirst {
		t.cause = want.GetCause()
	}
}

// failing reports whether the last attempt failed.
func (t *trigger) failing() bool { return t.due.GetFirstFailedAt() != nil }

// failingSince returns the start of the failures without a success in between.
func (t *trigger) failingSince(now time.Time) time.Time {
	if !t.failing() {
		return now
	}
	return t.due.GetFirstFailedAt().AsTime()
}

// reported is the last published failure class.
func (t *trigger) reported() v1.FailureClass {
	if t.due.GetWithheld() {
		return failure.Unspecified
	}
	return t.due.GetReported()
}

// youngFor is how long hardly anybody replaces a want: the default of --coalesce of the watcher. Results of a replaced
// one only cost time, since the writer drops them. To ask the broker costs an eighth of the CPU time of fetcher and
// NATS.
const youngFor = 250 * time.Millisecond

// young reports whether a trigger is a want that was published just now.
func (t *trigger) young(now time.Time) bool {
	return t.kind == pipeline.KindWant && now.Sub(t.storedAt) < youngFor
}

func (t *trigger) tombstone() bool { return t.kind == pipeline.KindWant && t.want == nil }

func (t *trigger) interval() time.Duration { return t.want.GetRefresh().AsDuration() }

// untried reports whether the message repeats a want without an attempt.
func (t *trigger) untried() bool {
	return t.cause == v1.Cause_CAUSE_PARKED && t.due.GetAttempts() == 0 && !t.failing() && t.due.GetCached() == nil
}

// urgent reports whether a person requested a fetch that was not attempted yet.
func (t *trigger) urgent() bool {
	switch {
	case t.due.GetAttempts() > 0:
		return false
	case t.cause == v1.Cause_CAUSE_NOW, t.cause == v1.Cause_CAUSE_REPLAY:
		return true
	}
	return t.cause == v1.Cause_CAUSE_PARKED &&
		(t.want.GetCause() == v1.Cause_CAUSE_NOW && t.untried() || t.due.GetReplayOf() > 0)
}

// rank returns the priority of a key within its namespace.
func (t *trigger) rank() throttle.Rank {
	switch {
	case t.urgent():
		return throttle.Urgent
	case t.due.GetAttempts() > 0 || !t.failing() && t.due.GetCached() == nil:
		return throttle.Wanted
	}
	return throttle.Refresh
}

// notBefore is the earliest start of a shared GET for a trigger. A fetch on demand needs a GET that
// started later, and so does a want for a body that Kubernetes has lost. All others may share a GET
// that is a second old. Both times are by the broker's clock.
func (t *trigger) notBefore() time.Time {
	switch {
	case t.urgent(), t.cause == v1.Cause_CAUSE_AUDIT, t.cause == v1.Cause_CAUSE_DRIFT:
		return t.storedAt
	default:
		return time.Time{}
	}
}

// overtaken reports whether others may have worked on the key meanwhile. Then the writer may drop the
// outcome of an older trigger, so nothing may rely on it.
func (t *trigger) overtaken(now time.Time) bool { return now.Sub(t.began) > pipeline.AckWait }

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
	return egress.Authority(u)
}
