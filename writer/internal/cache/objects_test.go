package cache_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kv8s/curl-me-that/writer/internal/cache"
)

func TestObjectsAreBoundedByBytes(t *testing.T) {
	const each, most = 64 << 10, 32 << 20
	c := cache.NewObjects(testclock.NewFakeClock(time.Now()))
	large := &metav1.ObjectMeta{Annotations: map[string]string{"large": strings.Repeat("x", each)}}
	refs := make([]types.NamespacedName, 1000)
	for i := range refs {
		refs[i] = types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("cm-", i)}
		c.Put(refs[i], large)
	}
	kept := 0
	for _, ref := range refs {
		if _, found := c.Get(ref); found {
			kept++
		}
	}
	if _, newest := c.Get(refs[len(refs)-1]); kept > most/each || kept < most/each/2 || !newest {
		t.Errorf("%d objects of 64 KiB are kept, the newest: %t", kept, newest)
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
