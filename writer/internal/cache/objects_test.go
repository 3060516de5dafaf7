package cache_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/cache"
)

// metadata returns the metadata of a ConfigMap with annotated keys and with foreign keys.
func metadata(tb testing.TB, name string, keys, foreign int) *metav1.ObjectMeta {
	tb.Helper()
	pairs := make([]string, keys)
	s := status.Status{Keys: map[string]status.Entry{}}
	ours, theirs := map[string]any{}, map[string]any{}
	for i := range keys {
		key := fmt.Sprint("key-", i)
		url := "https://data.example.com/" + name + "/" + key
		pairs[i] = key + "=" + url
		ours["f:"+key] = struct{}{}
		s.Keys[key] = status.Entry{
			URL: url, SHA256: strings.Repeat("0", 64), Size: 4, ETag: `"etag"`, Fence: status.Fence{Epoch: 1, Seq: 1},
		}
	}
	for i := range foreign {
		theirs[fmt.Sprint("f:a-key-of-others-", i)] = struct{}{}
	}
	entry := func(manager string, fields map[string]any) metav1.ManagedFieldsEntry {
		raw, err := json.Marshal(map[string]any{"f:data": fields})
		if err != nil {
			tb.Fatal(err)
		}
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: "Update", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
		}
	}
	return &metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		Annotations:   map[string]string{annotation.DefaultKey: strings.Join(pairs, " "), annotation.StatusKey: s.String()},
		ManagedFields: []metav1.ManagedFieldsEntry{entry(annotation.FieldManager, ours), entry("person", theirs)},
	}
}

// fill caches objects and returns the growth of the heap, in bytes.
func fill(tb testing.TB, c *cache.Objects, objects, keys, foreign int) int64 {
	tb.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range objects {
		name := fmt.Sprint("cm-", i)
		c.Put(types.NamespacedName{Namespace: "ns", Name: name}, metadata(tb, name, keys, foreign))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(c)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func TestObjectsAreBoundedByBytes(t *testing.T) {
	for name, tt := range map[string]struct {
		objects, keys, foreign int
		most                   int64
	}{
		"2,000 objects with 128 keys":         {2000, 128, 0, 48 << 20},
		"80 objects with 20,000 foreign keys": {80, 1, 20_000, 48 << 20},
	} {
		clock := testclock.NewFakeClock(time.Now())
		if grown := fill(t, cache.NewObjects(clock), tt.objects, tt.keys, tt.foreign); grown > tt.most {
			t.Errorf("%s: %d bytes, more than %d", name, grown, tt.most)
		}
	}
}

func TestObjectsExpire(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	c := cache.NewObjects(clock)
	ref := types.NamespacedName{Namespace: "ns", Name: "cm"}
	c.Put(ref, &metav1.ObjectMeta{UID: "uid"})
	if o, found := c.Get(ref); !found || o.UID != "uid" {
		t.Fatalf("got %+v, %v", o, found)
	}
	clock.Step(31 * time.Second)
	if _, found := c.Get(ref); found {
		t.Error("kept for too long")
	}
	c.Put(ref, &metav1.ObjectMeta{UID: "uid"})
	c.Drop(ref)
	if _, found := c.Get(ref); found {
		t.Error("not dropped")
	}
}
