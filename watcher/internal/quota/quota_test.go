package quota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
)

// bench is a quota over the objects of an informer.
type bench struct {
	*WithT
	*quota.Quota
	objects *informer.Informer[*annotated.Object]
	version int
}

func newBench(tb testing.TB, l quota.Limits) *bench {
	tb.Helper()
	b := &bench{WithT: NewWithT(tb)}
	grammar, err := annotation.New(annotation.Defaults())
	b.Expect(err).NotTo(HaveOccurred())
	reader := &annotated.Reader{Grammar: grammar, Now: time.Now}
	b.objects = informer.New(informer.Config{}, informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{
		Read: reader.Read, Notify: func(types.NamespacedName, bool) { b.Changed() }, Now: time.Now,
	})
	b.Quota = quota.New(l, b.objects)
	return b
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// asks makes an object, created at a second, request keys.
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
func (b *bench) keys(name string) int { return len(b.GetCompiled(named(name)).Request.Pairs) }

// refresh returns the interval of an object.
func (b *bench) refresh(name string) time.Duration { return b.GetCompiled(named(name)).Request.Refresh }

func TestTheOldestConfigMapsGetTheKeys(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		b := newBench(t, quota.Limits{Keys: 100})
		for _, n := range order {
			b.asks(fmt.Sprint("cm-", n), n, 40, "")
		}
		b.Decide()
		for n, want := range []int{40, 40, 0, 0} {
			b.Expect(b.keys(fmt.Sprint("cm-", n))).To(Equal(want), "cm-%d in order %v", n, order)
		}
	}
}

func TestARemovedKeyMakesRoomForTheNextOldestConfigMap(t *testing.T) {
	b := newBench(t, quota.Limits{Keys: 10})
	for n := range 4 {
		b.asks(fmt.Sprint("cm-", n), n, 5, "")
	}
	b.Decide()
	b.asks("cm-0", 0, 1, "")
	b.Expect(b.Decide()).To(BeEmpty(), "objects with changed limits")
	b.asks("cm-1", 1, 1, "")
	b.Expect(b.Decide()).To(HaveExactElements(named("cm-2")), "objects with changed limits")
	b.Expect(b.keys("cm-2")).To(Equal(5))
	b.Expect(b.keys("cm-3")).To(BeZero())
	b.asks("cm-2", 2, 3, "")
	b.asks("cm-3", 3, 5, "")
	b.Decide()
	b.Expect(b.keys("cm-3")).To(Equal(5), "within the limit")
}

func TestIntervalsAreStretchedByAPowerOfTwo(t *testing.T) {
	b := newBench(t, quota.Limits{Refreshes: 20})
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 100, "10s") // 100 refreshes a second
	}
	b.Expect(b.Decide()).To(HaveLen(10), "objects with changed limits")
	said := ""
	for n := range 10 {
		o := b.GetCompiled(named(fmt.Sprint("cm-", n)))
		b.Expect(o.Request.Refresh).To(Equal(80 * time.Second))
		for _, p := range o.Request.Problems {
			said += o.Name + ": " + p.Text
		}
	}
	b.Expect(said).To(Equal("cm-0: curl-refresh is multiplied by 8 in namespace ns; its 1000 refreshed keys ask for " +
		"more than 20 refreshes a second"))

	for n := range 5 { // 50 refreshes a second; a factor of 2 requires less than 32
		b.asks(fmt.Sprint("cm-", n), n, 100, "")
	}
	b.Decide()
	b.Expect(b.refresh("cm-9")).To(Equal(40*time.Second), "with half of the refreshes")
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 17, "10s") // 17 refreshes a second, more than 80 % of the bound
	}
	b.Decide()
	b.Expect(b.refresh("cm-9")).To(Equal(20*time.Second), "near the bound")
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 15, "10s")
	}
	b.Decide()
	b.Expect(b.refresh("cm-0")).To(Equal(10*time.Second), "within the bound")
	b.Expect(b.GetCompiled(named("cm-0")).Request.Problems).To(BeEmpty())
}

func TestAnotherObjectReportsTheStretchOnceTheReporterDoesNotRefresh(t *testing.T) {
	b := newBench(t, quota.Limits{Refreshes: 20})
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 100, "10s")
	}
	b.Decide()
	b.asks("cm-0", 0, 100, "")
	b.Expect(b.Decide()).To(HaveExactElements(named("cm-1")), "objects with changed limits")
	b.Expect(b.GetCompiled(named("cm-1")).Request.Problems).To(ContainElement(HaveField("Text",
		"curl-refresh is multiplied by 8 in namespace ns; its 900 refreshed keys ask for more than 20 refreshes a second")))
	b.Expect(b.Decide()).To(BeEmpty(), "objects with changed limits")
}

func TestANamespaceWithinItsLimitsCostsNothing(t *testing.T) {
	b := newBench(t, quota.Limits{Keys: 10_000, Refreshes: 200})
	b.asks("cm", 1, 1, "10s")
	b.Expect(b.Decide()).To(BeNil())
	b.Expect(b.GetCompiled(named("cm"))).To(BeIdenticalTo(b.objects.Get(named("cm"))))
	b.Expect(testing.AllocsPerRun(100, func() { b.GetCompiled(named("cm")) })).To(BeZero())
}
