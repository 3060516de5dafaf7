package informer_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func reader(t *testing.T) *informer.Reader {
	t.Helper()
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return &informer.Reader{
		Grammar:   grammar,
		Protected: func(namespace, _ string) bool { return namespace == "kube-system" },
		Now:       func() time.Time { return time.Unix(1000, 0) },
	}
}

// meta is the metadata of a ConfigMap, namespace/name, at a version.
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

func TestTransformKeepsWhatConcernsUs(t *testing.T) {
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
		if c.object.Annotations != nil {
			c.object.Annotations[lastApplied] = "much"
		}
		wanted := reader(t).Read(c.object)
		trimmed, err := reader(t).Transform()(c.object)
		if err != nil {
			t.Fatal(err)
		}
		// What the cache keeps a list under.
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(trimmed); err != nil || !strings.HasSuffix(key, "/cm") {
			t.Errorf("%s: kept under %q (%v)", name, key, err)
		}
		got := informer.Trimmed(trimmed)
		if kept := got != nil; kept != c.kept || (wanted != nil) != c.kept {
			t.Errorf("%s: kept is %t, read before %v", name, kept, wanted)
		}
		if c.kept && (!reflect.DeepEqual(got.Request, wanted.Request) || got.UID != wanted.UID || got.Owner("a") != wanted.Owner("a")) {
			t.Errorf("%s: trimmed to %+v, want %+v", name, got, wanted)
		}
	}
	if other, err := reader(t).Transform()(cache.DeletedFinalStateUnknown{}); err != nil || other != (cache.DeletedFinalStateUnknown{}) {
		t.Errorf("got %v, %v", other, err)
	}
}

func TestReadTellsWhoOwnsTheKeys(t *testing.T) {
	t.Parallel()
	annotations := asks("a=example.com b=example.com")
	annotations[annotation.StatusKey] = `{"c":{"error":"Timeout"}}`
	o := reader(t).Read(meta("ns/cm", "1", annotations))
	for key, want := range map[string]annotation.State{
		"a": annotation.Foreign, "b": annotation.None, "c": annotation.None, "never asked for": annotation.Unknown,
	} {
		if got := o.Owner(key).State; got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
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

// changes records what a store says.
type changes map[types.NamespacedName]bool

func (c changes) note(name types.NamespacedName, live bool) { c[name] = live }

func (c changes) take() []string {
	said := []string{}
	for name, live := range c {
		text := name.String()
		if live {
			text += " live"
		}
		said = append(said, text)
	}
	clear(c)
	return slices.Sorted(slices.Values(said))
}

func TestStoreTellsOfChangesOnly(t *testing.T) {
	t.Parallel()
	said := changes{}
	s := informer.New(informer.Config{Scopes: []string{""}}, informer.Deps{Reader: reader(t), Notify: said.note})
	scope := s.Scope("")
	trimmed, err := scope.Transformer()(meta("d/cm", "1", nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"first list", func() error {
			return scope.Replace([]any{meta("a/cm", "1", asks("a=b")), meta("b/cm", "1", asks("a=b")), meta("c/cm", "1", nil), trimmed}, "5")
		}, []string{"a/cm", "b/cm"}},
		{"edit", func() error { return scope.Update(meta("a/cm", "6", asks("a=c"))) }, []string{"a/cm live"}},
		{"the same again", func() error { return scope.Update(meta("a/cm", "6", asks("a=c"))) }, nil},
		{"edit of another", func() error { return scope.Update(meta("c/cm", "7", nil)) }, nil},
		{"begins to ask", func() error { return scope.Add(meta("c/cm", "8", asks("a=b"))) }, []string{"c/cm live"}},
		{"no longer asks", func() error { return scope.Update(meta("c/cm", "9", nil)) }, []string{"c/cm live"}},
		{"deleted", func() error { return scope.Delete(meta("b/cm", "10", asks("a=b"))) }, []string{"b/cm live"}},
		{"deleted again", func() error { return scope.Delete(meta("b/cm", "10", asks("a=b"))) }, nil},
		{"list after a gap", func() error { return scope.Replace([]any{meta("b/cm", "12", asks("a=b"))}, "13") }, []string{"a/cm", "b/cm"}},
		{"re-created", func() error {
			m := meta("b/cm", "12", asks("a=b"))
			m.UID = "another"
			return scope.Update(m)
		}, []string{"b/cm live"}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := said.take(); !slices.Equal(got, step.want) {
			t.Errorf("%s: told of %v, want %v", step.name, got, step.want)
		}
	}
	if s.Len() != 1 || s.Get(types.NamespacedName{Namespace: "b", Name: "cm"}).UID != "another" || len(s.Names()) != 1 {
		t.Errorf("holds %v", s.Names())
	}
	for _, do := range []func(any) error{scope.Add, scope.Delete, func(o any) error { return scope.Replace([]any{o}, "") }} {
		if do("what is this") == nil {
			t.Error("took what is no ConfigMap")
		}
	}
}

func TestStoreOfSeveralNamespaces(t *testing.T) {
	t.Parallel()
	s := informer.New(informer.Config{Scopes: []string{"a", "b"}}, informer.Deps{Reader: reader(t), Notify: changes{}.note})
	a, b := s.Scope("a"), s.Scope("b")
	synced := func() bool {
		select {
		case <-s.Synced():
			return true
		default:
			return false
		}
	}
	if err := a.Replace([]any{meta("a/cm", "1", asks("a=b"))}, "1"); err != nil || synced() {
		t.Fatalf("synced before all were listed (%v)", err)
	}
	if err := b.Replace([]any{meta("b/cm", "1", asks("a=b"))}, "1"); err != nil || !synced() {
		t.Fatalf("not synced (%v)", err)
	}
	if err := b.Replace(nil, "2"); err != nil || s.Len() != 1 {
		t.Errorf("a list of b left %v (%v)", s.Names(), err)
	}
	if s.Silence() != 0 {
		t.Errorf("silent for %s, just listed", s.Silence())
	}
}
