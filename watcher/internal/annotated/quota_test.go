package annotated_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

// bench is a quota over the objects of an informer.
type bench struct {
	*WithT
	*annotated.Quota
	objects *informer.Informer[*annotated.Object]
	version int
}

func newBench(tb testing.TB, l annotated.Limits) *bench {
	tb.Helper()
	b := &bench{WithT: NewWithT(tb)}
	grammar, err := annotation.New(annotation.Defaults())
	b.Expect(err).NotTo(HaveOccurred())
	reader := &annotated.Reader{Grammar: grammar, Now: time.Now}
	b.objects = informer.New(informer.Config{}, informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{
		Read: reader.Read, Notify: func(types.NamespacedName, bool) {}, Now: time.Now,
	})
	b.Quota = annotated.NewQuota(l, b.objects)
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
func (b *bench) keys(name string) int { return len(b.Get(named(name)).Request.Pairs) }

// refresh returns the interval of an object.
func (b *bench) refresh(name string) time.Duration { return b.Get(named(name)).Request.Refresh }

func TestTheOldestConfigMapsGetTheKeys(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		b := newBench(t, annotated.Limits{Keys: 100})
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
	b := newBench(t, annotated.Limits{Keys: 10})
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
	b := newBench(t, annotated.Limits{Refreshes: 20})
	for n := range 10 {
		b.asks(fmt.Sprint("cm-", n), n, 100, "10s") // 100 refreshes a second
	}
	b.Expect(b.Decide()).To(HaveLen(10), "objects with changed limits")
	said := ""
	for n := range 10 {
		o := b.Get(named(fmt.Sprint("cm-", n)))
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
	b.Expect(b.Get(named("cm-0")).Request.Problems).To(BeEmpty())
}

func TestANamespaceWithinItsLimitsCostsNothing(t *testing.T) {
	b := newBench(t, annotated.Limits{Keys: 10_000, Refreshes: 200})
	b.asks("cm", 1, 1, "10s")
	b.Expect(b.Decide()).To(BeNil())
	b.Expect(b.Get(named("cm"))).To(BeIdenticalTo(b.objects.Get(named("cm"))))
	b.Expect(testing.AllocsPerRun(100, func() { b.Get(named("cm")) })).To(BeZero())
}

func reader(t *testing.T) *annotated.Reader {
	t.Helper()
	grammar, err := annotation.New(annotation.Defaults())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &annotated.Reader{
		Grammar:   grammar,
		Protected: func(namespace, _ string) bool { return namespace == "kube-system" },
		Now:       func() time.Time { return time.Unix(1000, 0) },
	}
}

// meta returns metadata of the ConfigMap namespace/name.
func meta(name, version string, annotations map[string]string) *metav1.PartialObjectMetadata {
	namespace, name, _ := strings.Cut(name, "/")
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "uid", ResourceVersion: version, Annotations: annotations,
		Labels: map[string]string{"app": "x"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			Time:     &metav1.Time{Time: time.Unix(500, 0)},
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}},"f:metadata":{"f:annotations":{"f:x-kv8s.io/curl-me-that":{}}}}`),
		}},
	}}
}

func asks(value string) map[string]string { return map[string]string{annotation.DefaultKey: value} }

func TestReadKeepsRelevantObjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object *metav1.PartialObjectMetadata
		kept   bool
	}{
		"annotated":                 {meta("ns/cm", "1", asks("a=b")), true},
		"has the legacy annotation": {meta("ns/cm", "1", map[string]string{annotation.LegacyKey: "a=b"}), true},
		"has a status":              {meta("ns/cm", "1", map[string]string{annotation.StatusKey: "{}"}), true},
		"not annotated":             {meta("ns/cm", "1", map[string]string{"other": "x"}), false},
		"protected":                 {meta("kube-system/cm", "1", asks("a=b")), false},
	} {
		NewWithT(t).Expect(reader(t).Read(c.object) != nil).To(Equal(c.kept), name)
	}
}

func TestReadKeepsTheOwnersOfKeys(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	annotations := asks("a=example.com b=example.com")
	annotations[annotation.StatusKey] = `{"c":{"error":"Timeout"}}`
	o := reader(t).Read(meta("ns/cm", "1", annotations))
	for key, want := range map[string]annotation.OwnerState{
		"a": annotation.Foreign, "b": annotation.None, "c": annotation.None, "never requested": annotation.Unknown,
	} {
		g.Expect(o.Owner(key).State).To(Equal(want), key)
	}
	g.Expect(o.MainAnnotatedAt).To(BeTemporally("==", time.Unix(500, 0)))
	g.Expect(o.SeenAt).To(BeTemporally("==", time.Unix(1000, 0)))
	g.Expect(o.Status.Of("c").Error).To(Equal("Timeout"))
	garbled := meta("ns/cm", "1", map[string]string{annotation.DefaultKey: "not correct", annotation.StatusKey: "{"})
	garbled.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1("{")
	o = reader(t).Read(garbled)
	g.Expect(o.Invalid).To(HaveOccurred())
	g.Expect(o.Status.Len()).To(BeZero())
	g.Expect(o.Owner("a").State).To(Equal(annotation.Unknown))
}

func TestEntriesEqualTheStatus(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC)
	digest := strings.Repeat("0af1", 16)
	whole := status.Entry{
		URL: "https://a.example/x", SHA256: digest, Size: 7, ChangedAt: at,
		Binary: true, Error: "Timeout", ErrorURL: "https://a.example/y", Since: at.Add(time.Hour), Attempts: 3,
		GaveUp: true,
		Drift:  "none", UIDMark: "12345678", Fence: status.Fence{Epoch: 5, Seq: 6},
	}
	entries := map[string]status.Entry{
		"whole": whole, "empty": {},
		"well":              {URL: whole.URL, SHA256: digest, ChangedAt: at, UIDMark: "12345678"},
		"recovered":         {URL: whole.URL, SHA256: digest, Since: at},
		"never written":     {Error: "DNSError", Since: at, Attempts: 1},
		"copied, short uid": {SHA256: digest, UIDMark: "uid"},
		"before 1970":       {SHA256: digest, ChangedAt: time.Unix(-1, 0).UTC()},
		"explained": {
			Error: "BadStatus", GaveUp: true,
			Explanation: &status.Explanation{HTTPStatus: 404, Message: "a.example responded with 404", NextTry: at},
		},
		"in 1970": {SHA256: digest, ChangedAt: time.Unix(0, 0).UTC()},
	}
	packed := annotated.EntriesOf(status.Status{Keys: entries}, nil)
	g := NewWithT(t)
	g.Expect(maps.Equal(packed.Status().Keys, entries)).To(BeTrue(), "%+v", packed.Status().Keys)
	g.Expect(slices.Collect(packed.Keys())).To(Equal(slices.Sorted(maps.Keys(entries))))
	g.Expect(packed.Len()).To(Equal(len(entries)))
	for key, entry := range entries {
		g.Expect(packed.Of(key)).To(Equal(entry), key)
	}
	g.Expect(packed.Of("another")).To(BeZero())
}
