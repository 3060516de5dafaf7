package annotated_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

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
		GaveUp:             true,
		CheckedFingerprint: "none", UIDMark: "12345678", Fence: status.Fence{Epoch: 5, Seq: 6},
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
