package wantindex_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

func key(name, key string) pipeline.Key {
	return pipeline.Key{Namespace: "ns", Name: name, Key: key}
}

func TestTheHashDistinguishesRequests(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	want := func(change func(*v1.Want)) *v1.Want {
		w := &v1.Want{Uid: "uid", Url: "https://example.com", Sha256: "sum", Refresh: durationpb.New(time.Minute)}
		change(w)
		return w
	}
	same := wantindex.RequestHash(want(func(*v1.Want) {}))
	for name, c := range map[string]struct {
		change func(*v1.Want)
		same   bool
	}{
		"version":           {func(w *v1.Want) { w.ResourceVersion = "7" }, true},
		"status":            {func(w *v1.Want) { w.Status = "{}" }, true},
		"now":               {func(w *v1.Want) { w.Now = "1" }, true},
		"fingerprint":       {func(w *v1.Want) { w.Fingerprint = "none" }, true},
		"uid":               {func(w *v1.Want) { w.Uid = "another" }, false},
		"url":               {func(w *v1.Want) { w.Url = "https://example.com/" }, false},
		"digest":            {func(w *v1.Want) { w.Sha256 = "" }, false},
		"interval":          {func(w *v1.Want) { w.Refresh = nil }, false},
		"shifted by a byte": {func(w *v1.Want) { w.Uid, w.Url = "uidh", "ttps://example.com" }, false},
	} {
		equal := wantindex.RequestHash(want(c.change)) == same
		g.Expect(equal).To(Equal(c.same), "the same with another %s", name)
	}
	zero := wantindex.RequestHash(want(func(w *v1.Want) { w.Refresh = durationpb.New(0) }))
	g.Expect(wantindex.RequestHash(want(func(w *v1.Want) { w.Refresh = nil }))).To(Equal(zero), "without an interval")
}

func TestFromWant(t *testing.T) {
	t.Parallel()
	now := time.Unix(5, 0)
	w := &v1.Want{Uid: "uid", Now: "1", Fingerprint: "none", Epoch: 10, Refresh: durationpb.New(time.Minute)}
	g := NewWithT(t)
	g.Expect(wantindex.FromWant(w, 10, 3, now)).To(And(HaveField("Fence", status.Fence{Epoch: 10, Seq: 3}),
		HaveField("RequestHash", wantindex.RequestHash(w)), HaveField("Now", "1"), HaveField("Fingerprint", "none"),
		HaveField("Refreshes", true), HaveField("At", BeTemporally("==", now)),
		HaveField("Finding", BeEquivalentTo(wantindex.NothingLost)), HaveField("Answered", false)))
	g.Expect(wantindex.FromWant(w, 11, 3, now)).To(Equal(wantindex.Unreadable(11, 3, now)), "a want of another epoch")
}

func TestIndex(t *testing.T) {
	t.Parallel()
	g, x := NewWithT(t), wantindex.NewIndex()
	x.Reset(10, map[pipeline.Key]wantindex.Want{
		key("a", "1"): wantindex.Unreadable(10, 5, time.Time{}),
		key("a", "2"): wantindex.Unreadable(10, 3, time.Time{}),
		key("b", "1"): wantindex.Unreadable(10, 4, time.Time{}),
	})
	a := types.NamespacedName{Namespace: "ns", Name: "a"}
	g.Expect(x.Epoch()).To(BeEquivalentTo(10))
	g.Expect(x.Names()).To(HaveLen(2))
	g.Expect(x.Wants(a)).To(HaveLen(2))
	oldest, seq, found := x.Oldest()
	g.Expect([]any{oldest, seq, found}).To(Equal([]any{key("a", "2"), uint64(3), true}))

	copied := x.Wants(a)
	x.Drop(key("a", "2"))
	x.RecordAnswer(key("a", "1"))
	x.RecordAnswer(key("a", "none"))
	g.Expect(copied).To(And(HaveLen(2), HaveKeyWithValue("1", HaveField("Answered", false))), "a copy")
	g.Expect(x.Wants(a)).To(And(HaveLen(1), HaveKeyWithValue("1", HaveField("Answered", true))))

	var seen []string
	x.Each(func(k pipeline.Key, _ wantindex.Want) { seen = append(seen, k.Name+"/"+k.Key) })
	g.Expect(seen).To(ConsistOf("a/1", "b/1"))

	x.Drop(key("a", "1"))
	x.Drop(key("b", "1"))
	x.Drop(key("c", "1"))
	_, _, found = x.Oldest()
	g.Expect(found).To(BeFalse())
	g.Expect(x.Names()).To(BeEmpty())
	x.Reset(11, nil)
	g.Expect(x.Epoch()).To(BeEquivalentTo(11))
	g.Expect(x.Wants(a)).To(BeEmpty())
}
