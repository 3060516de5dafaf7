package plan_test

import (
	"strings"
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

func TestWantCarriesTheStatusOfItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries   map[string]status.Entry
		carried   bool
		readFirst bool
	}{
		"its own entry":       {map[string]status.Entry{"k": {Error: "Timeout"}}, true, false},
		"none":                {nil, false, false},
		"another key's entry": {map[string]status.Entry{"other": {Error: "Timeout"}}, false, true},
		"several entries":     {map[string]status.Entry{"k": {Error: "Timeout"}, "other": {Error: "Timeout"}}, false, true},
		"too long": {
			map[string]status.Entry{"k": {ErrorURL: strings.Repeat("x", 32<<10+1), Error: "Timeout"}},
			false, true,
		},
	} {
		call := about(none, nil, nil)
		call.object.Status = annotated.EntriesOf(status.Status{Keys: c.entries}, nil)
		w := plan.Make(call.object, nil, epoch).Publish[0]
		carried := w.Status != ""
		NewWithT(t).Expect(carried).To(Equal(c.carried), name)
		NewWithT(t).Expect(w.ReadFirst).To(Equal(c.readFirst), name)
	}
}

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
			base(func(w *v1.Want) { w.Cause, w.Fingerprint = v1.Cause_CAUSE_DRIFT, "none" }),
		},
		"in sync": {about(ours, written(), nil, delivered), base(func(w *v1.Want) {
			w.Cause, w.AskedAt, w.Status = v1.Cause_CAUSE_NEW, asked, held.String()
			w.Cached = &v1.Cached{Sha256: sum}
		})},
	} {
		p := plan.Make(tt.object, tt.wants, epoch)
		NewWithT(t).Expect(p.Publish).To(HaveLen(1), name)
		NewWithT(t).Expect(proto.Equal(p.Publish[0].Want, tt.want)).To(BeTrue(), "%s: %v", name, p.Publish)
	}
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
			new(wantindex.FromWant(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))), true},
	} {
		got := plan.NeedsWant(tt.object, tt.object.Request.Pairs[0], tt.wants["k"], epoch)
		NewWithT(t).Expect(got).To(Equal(tt.want), name)
	}
}
