package annotation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// entry returns the managedFields entry of a manager for an update in the given second.
func entry(manager string, second int64, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: "Update", Time: new(metav1.Unix(second, 0)),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func ownersOf(t *testing.T, entries []metav1.ManagedFieldsEntry) annotation.Owners {
	t.Helper()
	owners, err := annotation.ParseOwners(entries)
	if err != nil {
		t.Fatal(err)
	}
	return owners
}

func TestOwner(t *testing.T) {
	none := annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	unknown := annotation.Ownership{State: annotation.Unknown, Fingerprint: "unknown"}
	ours := annotation.Ownership{State: annotation.Ours}
	foreign := func(fingerprint string) annotation.Ownership {
		return annotation.Ownership{State: annotation.Foreign, Fingerprint: fingerprint}
	}
	all := samples(t)
	for _, c := range []struct {
		sample, key string
		want        annotation.Ownership
	}{
		{"created", "x", foreign("kubectl-create/Update/2026-11-20T12:40:52Z")},
		{"created", "mydata", none},
		{"created without fields", "mydata", unknown},
		{"annotated", "mydata", none},
		{"annotated", ".", none},
		{"written by us", "mydata", ours},
		{"written by us", "x", foreign("kubectl-create/Update/2026-11-20T12:40:52Z")},
		{"edited by another", "mydata", foreign("kubectl-edit/Update/2026-11-20T12:40:56Z")},
		{"deleted by another", "mydata", none},
		{"applied by another with our value", "mydata", ours},
		{"applied by force", "mydata", foreign("kubectl/Apply/2026-11-20T12:46:32Z")},
		{"written by us to binaryData", "mydata", ours},
		{"deleted from binaryData", "mydata", none},
		{"reset", "mydata", unknown},
		{"reset, then edited", "z", unknown},
		{"reset, then applied", "x", foreign("before-first-apply/Update/2026-11-20T12:46:33Z")},
		{"reset, then applied", "w", foreign("kubectl/Apply/2026-11-20T12:46:33Z")},
	} {
		entries, found := all[c.sample]
		if !found {
			t.Fatalf("no sample %q", c.sample)
		}
		if got := ownersOf(t, entries).Of(c.key); got != c.want {
			t.Errorf("%s, key %s: got %+v, want %+v", c.sample, c.key, got, c.want)
		}
	}
}

func TestOwnerWithInvalidManagedFields(t *testing.T) {
	good, status := entry("m", 1, `{"f:data":{"f:mydata":{}}}`), entry("m", 1, `{"f:data":{"f:mydata":{}}}`)
	status.Subresource = "status"
	another := entry("m", 1, `{}`)
	another.FieldsType = "FieldsV2"
	for name, c := range map[string]struct {
		entries   []metav1.ManagedFieldsEntry
		malformed bool
	}{
		"absent":          {nil, false},
		"one empty entry": {[]metav1.ManagedFieldsEntry{{}}, false},
		"null":            {[]metav1.ManagedFieldsEntry{entry("m", 1, "null")}, false},
		"not an object":   {[]metav1.ManagedFieldsEntry{good, entry("m", 1, `[]`)}, true},
		"data not a map":  {[]metav1.ManagedFieldsEntry{good, entry("m", 1, `{"f:data":[]}`)}, true},
		"cut short":       {[]metav1.ManagedFieldsEntry{good, entry("m", 1, `{"f:data":{`)}, true},
		"another type":    {[]metav1.ManagedFieldsEntry{good, another}, true},
		"a subresource":   {[]metav1.ManagedFieldsEntry{status}, false},
	} {
		owners, err := annotation.ParseOwners(c.entries)
		if errors.Is(err, annotation.ErrManagedFields) != c.malformed || err != nil != c.malformed {
			t.Errorf("%s: error %v", name, err)
		}
		if got := owners.Of("mydata"); got.State != annotation.Unknown || got.Fingerprint != "unknown" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFingerprint(t *testing.T) {
	at := func(name string, second int64) metav1.ManagedFieldsEntry {
		return entry(name, second, `{"f:data":{"f:a":{}}}`)
	}
	of := func(entries ...metav1.ManagedFieldsEntry) string { return ownersOf(t, entries).Of("a").Fingerprint }
	if got := of(at("old", 1), at("new", 2)); got != "new/Update/1970-01-01T00:00:02Z" {
		t.Errorf("not from the newest owner: %q", got)
	}
	if of(at("x", 1), at("y", 1)) != of(at("y", 1), at("x", 1)) {
		t.Error("depends on the order of the entries")
	}
	if of(at("x", 1)) == of(at("x", 2)) {
		t.Error("a later write of the same manager does not show")
	}
	long := strings.Repeat("m", 128)
	if got := of(at(long, 1)); len(got) > 64 || got == of(at(long, 2)) {
		t.Errorf("for a long name: %q", got)
	}
	timeless := at("x", 1)
	timeless.Time = nil
	if got := of(timeless); got != "x/Update/0001-01-01T00:00:00Z" {
		t.Errorf("without a time: %q", got)
	}
}

func TestAnnotationChanged(t *testing.T) {
	all := samples(t)
	for sample, want := range map[string]string{
		"created":             "",
		"annotated":           "2026-11-20T12:40:53Z",
		"edited by another":   "2026-11-20T12:40:53Z",
		"reset":               "",
		"reset, then applied": "2026-11-20T12:46:33Z",
	} {
		got := ""
		if changed := ownersOf(t, all[sample]).AnnotationChanged(annotation.DefaultKey); !changed.IsZero() {
			got = changed.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", sample, got, want)
		}
	}
}

func TestOther(t *testing.T) {
	owners := ownersOf(t, samples(t)["written by us"])
	for key, want := range map[string]string{"mydata": "", "x": "kubectl-create", "absent": ""} {
		if got := owners.Other(key); got != want {
			t.Errorf("the other owner of %s is %q, want %q", key, got, want)
		}
	}
}

// Only keeps everything about matching keys.
func TestOnly(t *testing.T) {
	text := `{"f:data":{"f:a":{},"f:b":{},"f:c":{}},` +
		`"f:binaryData":{"f:d":{},"f:e":{}},"f:metadata":{"f:annotations":{"f:x":{}}}}`
	whole, err := annotation.ParseOwners([]metav1.ManagedFieldsEntry{entry("m", 1, text)})
	if err != nil || whole.AnnotationChanged("x").IsZero() {
		t.Fatal(whole, err)
	}
	kept := whole.Only(func(key string) bool { return strings.Contains("abd", key) })
	for key, matters := range map[string]bool{"a": true, "b": true, "d": true, "c": false, "e": false} {
		got, want := kept.Of(key), whole.Of(key)
		if (got == want) != matters || want.Fingerprint != "m/Update/1970-01-01T00:00:01Z" ||
			!matters && got.State != annotation.None {
			t.Errorf("%s: got %+v, the whole has %+v", key, got, want)
		}
	}
	if !kept.AnnotationChanged("x").IsZero() {
		t.Error("annotations are kept")
	}
}

func TestManager(t *testing.T) {
	for owner, want := range map[annotation.Ownership]string{
		{State: annotation.Foreign, Fingerprint: "kubectl-edit/Update/2026-01-02T12:00:00Z"}: "kubectl-edit",
		{State: annotation.Foreign, Fingerprint: "team/tool/Apply/2026-01-02T12:00:00Z"}:     "team/tool",
		{State: annotation.Foreign, Fingerprint: "0123456789abcdef"}:                         "",
		{State: annotation.None, Fingerprint: "none"}:                                        "",
		{State: annotation.Ours}: "",
	} {
		if got := owner.Manager(); got != want {
			t.Errorf("%+v: got %q", owner, got)
		}
	}
}

func TestAncientChangesProveNothing(t *testing.T) {
	data := `{"f:data":{"f:k":{}}}`
	ancient := entry("ancient-changes", 5, data)
	for name, tt := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    annotation.OwnerState
	}{
		"alone":                  {[]metav1.ManagedFieldsEntry{ancient}, annotation.Unknown},
		"and we":                 {[]metav1.ManagedFieldsEntry{ancient, entry("curl-me-that", 1, data)}, annotation.Ours},
		"and a later manager":    {[]metav1.ManagedFieldsEntry{ancient, entry("kubectl", 9, data)}, annotation.Foreign},
		"and an earlier manager": {[]metav1.ManagedFieldsEntry{ancient, entry("kubectl", 1, data)}, annotation.Unknown},
	} {
		owner := ownersOf(t, tt.entries).Of("k")
		if owner.State != tt.want || owner.State != annotation.Ours && owner.Unsettled() == owner.Fingerprint {
			t.Errorf("%s: %+v", name, owner)
		}
	}
	if other := ownersOf(t, []metav1.ManagedFieldsEntry{ancient}).Other("k"); other != "" {
		t.Errorf("another owner: %s", other)
	}
}
