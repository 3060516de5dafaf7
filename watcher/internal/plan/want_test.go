package plan_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// seen is when the watch delivered the object.
var seen = time.Unix(100, 0).UTC()

func delivered(c *call) { c.object.SeenAt = seen }

func TestFieldsOfAWant(t *testing.T) {
	t.Parallel()
	base := func(change func(*v1.Want)) *v1.Want {
		w := &v1.Want{
			Namespace: "ns", Name: "cm", Key: "k", Uid: "uid", ResourceVersion: "5", Url: url, Epoch: epoch,
			ObservedAt: timestamppb.New(seen),
		}
		change(w)
		return w
	}
	request := func(change func(*annotation.Request)) func(*call) {
		return func(c *call) { change(&c.object.Request) }
	}
	asked := timestamppb.New(seen)
	held := status.Status{Keys: map[string]status.Entry{"k": *written()}}
	for name, tt := range map[string]struct {
		call
		want *v1.Want
	}{
		"new": {about(none, nil, nil, delivered), base(func(w *v1.Want) { w.Cause, w.AskedAt = v1.Cause_CAUSE_NEW, asked })},
		"changed, with options": {
			about(none, nil, wanted(otherRequest), delivered, request(func(r *annotation.Request) {
				r.Refresh, r.Now, r.SHA256 = time.Minute, "1", map[string]string{"k": sum}
			})),
			base(func(w *v1.Want) {
				w.Cause, w.AskedAt, w.Refresh, w.Now, w.Sha256 = v1.Cause_CAUSE_CHANGED, asked, durationpb.New(time.Minute), "1",
					sum
			}),
		},
		"now": {
			about(none, nil, wanted(now("1")), delivered),
			base(func(w *v1.Want) { w.Cause, w.AskedAt = v1.Cause_CAUSE_NOW, asked }),
		},
		"found lost": {about(none, nil, wanted(lost), delivered), base(func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_AUDIT })},
		"drifted": {
			about(none, nil, wanted(resolved), delivered),
			base(func(w *v1.Want) { w.Cause, w.Drift = v1.Cause_CAUSE_DRIFT, "none" }),
		},
		"in sync": {about(ours, written(), nil, delivered), base(func(w *v1.Want) {
			w.Cause, w.AskedAt, w.Status = v1.Cause_CAUSE_NEW, asked, held.String()
			w.Cached = &v1.Cached{Sha256: sum}
		})},
	} {
		p := plan.For(tt.object, tt.wants, epoch)
		NewWithT(t).Expect(p.Publish).To(HaveLen(1), name)
		NewWithT(t).Expect(proto.Equal(p.Publish[0].Want, tt.want)).To(BeTrue(), "%s: %v", name, p.Publish)
	}
}

// The writer reads the rest itself.
func TestReconcileNamesTheObject(t *testing.T) {
	t.Parallel()
	c := about(ours, written(), nil, asking(annotation.Request{}), delivered)
	for _, remove := range []bool{false, true} {
		want := &v1.Result{
			Want:       &v1.Want{Namespace: "ns", Name: "cm", Key: status.ObjectKey, Uid: "uid", ResourceVersion: "5"},
			ObservedAt: timestamppb.New(seen), Outcome: &v1.Result_Reconcile{Reconcile: &v1.Reconcile{Remove: remove}},
		}
		got := plan.Reconcile(c.object, remove)
		NewWithT(t).Expect(proto.Equal(got, want)).To(BeTrue(), "%v", got)
	}
}

// A fixed mistake is reported once more.
func TestProblemsAreReportedUntilTheStatusHasThem(t *testing.T) {
	t.Parallel()
	invalid := func(c *call) { c.object.Invalid = errors.New("bad") }
	refused := asking(annotation.Request{
		Present:  true,
		Problems: []annotation.Problem{{Key: "k", Text: "bad", Skipped: true}}, Rejected: []string{"k"},
	})
	has := func(message string) func(*call) {
		return func(c *call) {
			problem := &status.Problem{Error: "InvalidAnnotation", Message: message}
			c.object.Status = annotated.EntriesOf(status.Status{Problem: problem}, nil)
		}
	}
	for name, tt := range map[string]struct {
		call
		problem string
		report  bool
	}{
		"invalid":                  {about(none, nil, nil, invalid), "bad", true},
		"invalid, in the status":   {about(none, nil, nil, invalid, has("bad")), "bad", false},
		"a pair":                   {about(none, nil, nil, refused), "bad", true},
		"a pair, in the status":    {about(none, nil, nil, refused, has("bad")), "bad", false},
		"another is in the status": {about(none, nil, nil, refused, has("worse")), "bad", true},
		"fixed":                    {about(none, nil, nil, has("bad")), "", true},
		"nothing":                  {about(none, nil, nil), "", false},
	} {
		p := plan.For(tt.object, tt.wants, epoch)
		NewWithT(t).Expect(p.Problem).To(Equal(tt.problem), name)
		NewWithT(t).Expect(p.AskWriter).To(Equal(tt.report), name)
	}
}

func TestNotesOfNotices(t *testing.T) {
	t.Parallel()
	manager := annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl-edit/Update/2026-01-02T12:00:00Z"}
	hashed := annotation.Ownership{State: annotation.Foreign, Fingerprint: "0123456789abcdef"}
	odd := annotation.Request{Present: true, Problems: []annotation.Problem{{Text: "odd"}}}
	for _, c := range []struct {
		want string
		call
	}{
		{"bad", about(none, nil, nil, func(c *call) { c.object.Invalid = errors.New("bad") })},
		{"odd", about(none, nil, nil, asking(odd))},
		{"key k was removed; it is fetched again", about(none, written(), nil)},
		{"key k was changed by field manager kubectl-edit; it is fetched again", about(manager, written(), nil)},
		{"key k was changed by somebody else; it is fetched again", about(hashed, written(), nil)},
		{
			"key k already exists and is not managed by curl-me-that; " +
				"remove it from the ConfigMap, or choose another key " +
				"[https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/why-empty.md#3]",
			about(foreign, nil, nil),
		},
	} {
		NewWithT(t).Expect(plan.For(c.object, c.wants, epoch).Notices).To(HaveExactElements(
			And(HaveField("Note", c.want), HaveField("Occurrence", Not(BeEmpty())))))
	}
	NewWithT(t).Expect(plan.For(about(foreign, nil, nil).object, nil, epoch).Occupied).To(Equal([]string{"k", url}))
}

// A finding of the audit does not count.
func TestNeedsWant(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call
		want bool
	}{
		"in sync":     {about(ours, written(), wanted(resolved)), false},
		"found lost":  {about(none, nil, wanted(lost)), false},
		"another URL": {about(none, nil, wanted(otherRequest)), true},
		"removed":     {about(none, written(), wanted(resolved)), true},
		"of another stream": {about(ours, written(),
			new(wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))), true},
	} {
		got := plan.NeedsWant(tt.object, tt.object.Request.Pairs[0], tt.wants["k"], epoch)
		NewWithT(t).Expect(got).To(Equal(tt.want), name)
	}
}
