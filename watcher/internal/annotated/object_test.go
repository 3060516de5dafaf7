package annotated_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

func reader(t *testing.T) *annotated.Reader {
	t.Helper()
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		t.Fatal(err)
	}
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

func TestReadKeepsWhatConcernsUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object *metav1.PartialObjectMetadata
		kept   bool
	}{
		"asks":              {meta("ns/cm", "1", asks("a=b")), true},
		"asks in old words": {meta("ns/cm", "1", map[string]string{annotation.LegacyKey: "a=b"}), true},
		"was written":       {meta("ns/cm", "1", map[string]string{annotation.StatusKey: "{}"}), true},
		"asks for nothing":  {meta("ns/cm", "1", map[string]string{"other": "x"}), false},
		"protected":         {meta("kube-system/cm", "1", asks("a=b")), false},
	} {
		if got := reader(t).Read(c.object); (got != nil) != c.kept {
			t.Errorf("%s: read %v", name, got)
		}
	}
}

func TestReadKeepsTheOwnersOfKeys(t *testing.T) {
	t.Parallel()
	annotations := asks("a=example.com b=example.com")
	annotations[annotation.StatusKey] = `{"c":{"error":"Timeout"}}`
	o := reader(t).Read(meta("ns/cm", "1", annotations))
	for key, want := range map[string]annotation.State{
		"a": annotation.Foreign, "b": annotation.None, "c": annotation.None, "never asked for": annotation.Unknown,
	} {
		if got := o.Owner(key).State; got != want {
			t.Errorf("%s is in state %d, want %d", key, got, want)
		}
	}
	if !o.Written.Equal(time.Unix(500, 0)) || !o.SeenAt.Equal(time.Unix(1000, 0)) || o.Status.Of("c").Error != "Timeout" {
		t.Errorf("got %+v", o)
	}
	garbled := meta("ns/cm", "1", map[string]string{annotation.DefaultKey: "not correct", annotation.StatusKey: "{"})
	garbled.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1("{")
	o = reader(t).Read(garbled)
	if o.Invalid == nil || o.Status.Len() != 0 || o.Owner("a").State != annotation.Unknown {
		t.Errorf("got %+v", o)
	}
}
