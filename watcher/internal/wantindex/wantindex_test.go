package wantindex_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

func key(name, key string) pipeline.Key {
	return pipeline.Key{Namespace: "ns", Name: name, Key: key}
}

func TestDigestDistinguishesWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	want := func(change func(*v1.Want)) *v1.Want {
		w := &v1.Want{Uid: "uid", Url: "https://example.com", Sha256: "sum", Refresh: durationpb.New(time.Minute)}
		change(w)
		return w
	}
	same := wantindex.Digest(want(func(*v1.Want) {}))
	for name, c := range map[string]struct {
		change func(*v1.Want)
		same   bool
	}{
		"version":           {func(w *v1.Want) { w.ResourceVersion = "7" }, true},
		"status":            {func(w *v1.Want) { w.Status = "{}" }, true},
		"now":               {func(w *v1.Want) { w.Now = "1" }, true},
		"drift":             {func(w *v1.Want) { w.Drift = "none" }, true},
		"uid":               {func(w *v1.Want) { w.Uid = "another" }, false},
		"url":               {func(w *v1.Want) { w.Url = "https://example.com/" }, false},
		"digest":            {func(w *v1.Want) { w.Sha256 = "" }, false},
		"interval":          {func(w *v1.Want) { w.Refresh = nil }, false},
		"shifted by a byte": {func(w *v1.Want) { w.Uid, w.Url = "uidh", "ttps://example.com" }, false},
	} {
		if got := wantindex.Digest(want(c.change)) == same; got != c.same {
			t.Errorf("another %s: the same is %t, want %t", name, got, c.same)
		}
	}
	if wantindex.Digest(want(func(w *v1.Want) { w.Refresh = nil })) != wantindex.Digest(
		want(func(w *v1.Want) { w.Refresh = durationpb.New(0) })) {
		t.Error("no interval and an interval of zero are not the same")
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	now := time.Unix(5, 0)
	w := &v1.Want{Uid: "uid", Now: "1", Drift: "none", Epoch: 10, Refresh: durationpb.New(time.Minute)}
	got := wantindex.Of(w, 10, 3, now)
	if got.Fence.Epoch != 10 || got.Fence.Seq != 3 || got.Digest != wantindex.Digest(w) || got.Now != "1" ||
		got.Drift != "none" ||
		!got.Refreshes || !got.At.Equal(now) || got.Finding != wantindex.NothingLost || got.Resolved {
		t.Errorf("got %+v", got)
	}
	if got := wantindex.Of(w, 11, 3, now); got != wantindex.Unreadable(11, 3, now) {
		t.Errorf("a want of another epoch is %+v", got)
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	x := wantindex.NewIndex()
	x.Reset(10, map[pipeline.Key]wantindex.Want{
		key("a", "1"): wantindex.Unreadable(10, 5, time.Time{}),
		key("a", "2"): wantindex.Unreadable(10, 3, time.Time{}),
		key("b", "1"): wantindex.Unreadable(10, 4, time.Time{}),
	})
	a := types.NamespacedName{Namespace: "ns", Name: "a"}
	if x.Epoch() != 10 || len(x.Names()) != 2 || len(x.Object(a)) != 2 {
		t.Errorf("epoch %d, names %v, a has %v", x.Epoch(), x.Names(), x.Object(a))
	}
	if oldest, seq, ok := x.Oldest(); oldest != key("a", "2") || seq != 3 || !ok {
		t.Errorf("oldest is %s at %d", oldest, seq)
	}

	copied := x.Object(a)
	x.Drop(key("a", "2"))
	x.Update(key("a", "1"), func(w *wantindex.Want) { w.Resolved = true })
	x.Update(key("a", "none"), func(w *wantindex.Want) { w.Resolved = true })
	if len(copied) != 2 || copied["1"].Resolved {
		t.Error("a copy changed with the index")
	}
	if now := x.Object(a); len(now) != 1 || !now["1"].Resolved {
		t.Errorf("a has %v", now)
	}

	var seen []string
	x.Each(func(k pipeline.Key, _ wantindex.Want) { seen = append(seen, k.Name+"/"+k.Key) })
	if slices.Sort(seen); !slices.Equal(seen, []string{"a/1", "b/1"}) {
		t.Errorf("each is %v", seen)
	}

	x.Drop(key("a", "1"))
	x.Drop(key("b", "1"))
	x.Drop(key("c", "1"))
	if _, _, ok := x.Oldest(); ok || len(x.Names()) != 0 {
		t.Errorf("still has %v", x.Names())
	}
	x.Reset(11, nil)
	if x.Epoch() != 11 || len(slices.Collect(maps.Keys(x.Object(a)))) != 0 {
		t.Error("not reset")
	}
}
