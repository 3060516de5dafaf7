package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
)

// bench is a quota over the objects of an informer.
type bench struct {
	testing.TB
	*quota.Quota
	objects *informer.Informer[*annotated.Object]
	version int
}

func newBench(tb testing.TB, l quota.Limits) *bench {
	tb.Helper()
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{TB: tb}
	reader := &annotated.Reader{Grammar: grammar, Now: time.Now}
	b.objects = informer.New(informer.Config{}, informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{
		Read: reader.Read, Notify: func(types.NamespacedName, bool) {}, Now: time.Now,
	})
	b.Quota = quota.New(l, b.objects)
	return b
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// asks makes an object, created in the given second, request some keys.
func (b *bench) asks(name string, created, keys int, refresh string) {
	b.version++
	var pairs []string
	for n := range keys {
		pairs = append(pairs, fmt.Sprintf("k%03d=example.com/%d", n, n))
	}
	b.objects.Put(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(b.version),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(created), 0)),
		Annotations: map[string]string{
			annotation.DefaultKey:    strings.Join(pairs, " "),
			"x-kv8s.io/curl-refresh": refresh,
		},
	}})
}

// keys returns the number of requested keys of an object.
func (b *bench) keys(name string) int { return len(b.Get(named(name)).Request.Pairs) }

func TestTheOldestConfigMapsHaveTheKeysOfANamespace(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		b := newBench(t, quota.Limits{Keys: 100})
		for _, n := range order {
			b.asks(fmt.Sprint("cm-", n), n, 40, "")
		}
		b.Settle()
		for n, want := range []int{40, 40, 0, 0} {
			if got := b.keys(fmt.Sprint("cm-", n)); got != want {
				t.Errorf("%d keys of cm-%d are asked for in order %v, want %d", got, n, order, want)
			}
		}
	}
}

func TestAKeyThatIsRemovedMakesRoomForTheNextOldest(t *testing.T) {
	b := newBench(t, quota.Limits{Keys: 10})
	for n := range 4 {
		b.asks(fmt.Sprint("cm-", n), n, 5, "")
	}
	b.Settle()
	b.asks("cm-0", 0, 1, "")
	if got := b.Settle(); len(got) != 0 {
		t.Errorf("%v are bounded in another way", got)
	}
	b.asks("cm-1", 1, 1, "")
	if got := b.Settle(); !slices.Equal(got, []types.NamespacedName{named("cm-2")}) {
		t.Errorf("%v are bounded in another way", got)
	}
	if b.keys("cm-2") != 5 || b.keys("cm-3") != 0 {
		t.Errorf("%d and %d keys are asked for", b.keys("cm-2"), b.keys("cm-3"))
	}
	b.asks("cm-2", 2, 3, "")
	b.asks("cm-3", 3, 5, "")
	if b.Settle(); b.keys("cm-3") != 5 {
		t.Error("a namespace within its limit is bounded")
	}
}

func TestIntervalsAreStretchedByAPowerOfTwo(t *testing.T) {
	b := newBench(t, quota.Limits{Refreshes: 20})
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 100, "10s") // 100 refreshes a second
	}
	if got := b.Settle(); len(got) != 10 {
		t.Errorf("%d objects are bounded in another way", len(got))
	}
	said := ""
	for n := range 10 {
		o := b.Get(named(fmt.Sprint("cm-", n)))
		if o.Request.Refresh != 80*time.Second {
			t.Errorf("cm-%d is refreshed every %s", n, o.Request.Refresh)
		}
		for _, p := range o.Request.Problems {
			said += o.Name + ": " + p.Text
		}
	}
	if want := "cm-0: curl-refresh is multiplied by 8 in namespace ns; its 1000 refreshed keys ask for more than 20 " +
		"refreshes a second"; said != want {
		t.Errorf("they say %q, want %q", said, want)
	}

	for n := range 5 { // 50 refreshes a second: 40 is the next bound, and 32 the one to come below
		b.asks(fmt.Sprint("cm-", n), n, 100, "")
	}
	b.Settle()
	if got := b.Get(named("cm-9")).Request.Refresh; got != 40*time.Second {
		t.Errorf("with half of the refreshes each is every %s", got)
	}
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 17, "10s") // 17 refreshes a second, more than four fifths
	}
	b.Settle()
	if got := b.Get(named("cm-9")).Request.Refresh; got != 20*time.Second {
		t.Errorf("near the bound the interval is %s", got)
	}
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 15, "10s")
	}
	b.Settle()
	if o := b.Get(named("cm-0")); o.Request.Refresh != 10*time.Second || len(o.Request.Problems) > 0 {
		t.Errorf("within the bound the interval is %s, and it says %v", o.Request.Refresh, o.Request.Problems)
	}
}

func TestANamespaceWithinItsLimitsCostsNothing(t *testing.T) {
	b := newBench(t, quota.Limits{Keys: 10_000, Refreshes: 200})
	b.asks("cm", 1, 1, "10s")
	if got := b.Settle(); got != nil || b.Get(named("cm")) != b.objects.Get(named("cm")) {
		t.Errorf("%v are bounded", got)
	}
	if allocations := testing.AllocsPerRun(100, func() { b.Get(named("cm")) }); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
