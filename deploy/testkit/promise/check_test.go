package promise_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

const url = "https://data.example.com/a"

// object returns a ConfigMap that requests key k.
func object(change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cm", ResourceVersion: "1", Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{annotation.DefaultKey: "k=" + url},
		},
		Data: map[string]string{"other": "theirs"},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func holds(key, text string) func(*corev1.ConfigMap) {
	return func(o *corev1.ConfigMap) { o.Data[key] = text }
}

// wrote sets a value and its status, like the writer.
func wrote(key, from, text string) func(*corev1.ConfigMap) {
	return func(o *corev1.ConfigMap) {
		o.Data[key] = text
		s := status.Status{Keys: map[string]status.Entry{key: {URL: from, SHA256: pipeline.Digest(text)}}}
		o.Annotations[annotation.StatusKey] = s.String()
	}
}

func annotated(key, text string) func(*corev1.ConfigMap) {
	return func(o *corev1.ConfigMap) { o.Annotations[key] = text }
}

func lacks(key string) func(*corev1.ConfigMap) {
	return func(o *corev1.ConfigMap) { delete(o.Data, key) }
}

func never(o *corev1.ConfigMap) { delete(o.Annotations, annotation.DefaultKey) }

func TestCheck(t *testing.T) {
	t.Parallel()
	type change = func(*corev1.ConfigMap)
	suspended := annotated("x-kv8s.io/curl-suspend", "true")
	demanded := annotated("x-kv8s.io/curl-sha256", "k="+strings.Repeat("0", 64))
	unreadable := annotated(annotation.DefaultKey, "not correct")
	pinned := annotated("x-kv8s.io/curl-sha256", "k="+pipeline.Digest("not found"))
	for name, c := range map[string]struct {
		before, after []change
		want          string // the broken promise, or empty
	}{
		"a requested body":         {nil, []change{wrote("k", url, "good")}, ""},
		"a newer body":             {[]change{wrote("k", url, "old")}, []change{wrote("k", url, "good")}, ""},
		"an outdated pair removed": {[]change{wrote("k", url, "good"), never}, []change{never}, ""},
		"another key written":      {nil, []change{wrote("k", url, "good"), holds("other", "ours")}, "S1"},
		"another key removed":      {nil, []change{wrote("k", url, "good"), lacks("other")}, "S4"},
		"a label changed": {nil, []change{
			wrote("k", url, "good"), func(o *corev1.ConfigMap) { o.Labels["app"] = "y" },
		}, "S1"},
		"an annotation added":     {nil, []change{wrote("k", url, "good"), annotated("a", "b")}, "S1"},
		"not requested":           {[]change{never}, []change{never, wrote("k", url, "good")}, "S1"},
		"body of another URL":     {nil, []change{wrote("k", url+"b", "good")}, "S2"},
		"suspended":               {[]change{suspended}, []change{suspended, wrote("k", url, "good")}, "S2"},
		"not the required digest": {[]change{demanded}, []change{demanded, wrote("k", url, "good")}, "S2"},
		"the required digest, from the history": {
			[]change{pinned}, []change{pinned, wrote("k", "", "not found")}, "",
		},
		"from the history, not required": {nil, []change{wrote("k", "", "not found")}, "S2"},
		"an error body":                  {nil, []change{wrote("k", url, "not found")}, "S5"},
		"no status":                      {nil, []change{holds("k", "good")}, "S2"},
		"text in binaryData": {nil, []change{wrote("k", url, "good"), lacks("k"), func(o *corev1.ConfigMap) {
			o.BinaryData = map[string][]byte{"k": []byte("good")}
		}}, "S1"},
		"a key of another owner": {[]change{holds("k", "theirs")}, []change{wrote("k", url, "good")}, "S4"},
		"a good value removed":   {[]change{wrote("k", url, "good")}, nil, "S5"},
		"removed under an invalid annotation": {
			[]change{wrote("k", url, "good"), unreadable}, []change{unreadable}, "S5",
		},
		"no change": {[]change{wrote("k", url, "good")}, []change{wrote("k", url, "good")}, "W1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c.want, promise.Version{Object: object(c.before...), BySpec: true},
				promise.Version{Object: object(c.after...)})
		})
	}
}

func TestCheckEnds(t *testing.T) {
	t.Parallel()
	created := promise.Version{Object: object(), BySpec: true}
	for name, c := range map[string]struct {
		versions []promise.Version
		want     string
	}{
		"created by the system": {[]promise.Version{{Object: object()}}, "S3"},
		"deleted by the system": {[]promise.Version{created, {Object: object(), Deleted: true}}, "S1"},
		"deleted by a test":     {[]promise.Version{created, {Object: object(), Deleted: true, BySpec: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c.want, c.versions...)
		})
	}
}

// check expects that the versions break a promise, or none if want is empty.
func check(t *testing.T, want string, versions ...promise.Version) {
	t.Helper()
	got := checker(t).Check([]promise.Life{{UID: "uid", Name: "cm", Versions: versions}})
	if want == "" && len(got) > 0 || want != "" && !strings.HasPrefix(strings.Join(got, "\n"), want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func checker(t *testing.T) promise.Checker {
	t.Helper()
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return promise.Checker{Grammar: grammar, Served: func(u string, body []byte) bool {
		return strings.HasPrefix(u, url) && (string(body) == "good" || string(body) == "old")
	}}
}

func TestRight(t *testing.T) {
	t.Parallel()
	type change = func(*corev1.ConfigMap)
	failing := func(o *corev1.ConfigMap) {
		s := status.Status{Keys: map[string]status.Entry{"k": {URL: url, Error: "Timeout"}}}
		o.Annotations[annotation.StatusKey] = s.String()
	}
	for name, c := range map[string]struct {
		is   []change
		want string
	}{
		"right":          {[]change{wrote("k", url, "good")}, ""},
		"suspended":      {[]change{annotated("x-kv8s.io/curl-suspend", "true")}, ""},
		"empty":          {nil, "key k is not there"},
		"of another URL": {[]change{wrote("k", url+"b", "good")}, "key k has the body of another URL"},
		"edited": {
			[]change{wrote("k", url, "good"), holds("k", "theirs")}, "key k differs from the digest in its status",
		},
		"never served":             {[]change{wrote("k", url, "not found")}, "key k has a body that its URL never served"},
		"failing":                  {[]change{failing}, "key k reports Timeout"},
		"not requested":            {[]change{wrote("k", url, "good"), never}, "key k exists and is no longer requested"},
		"not requested and theirs": {[]change{wrote("k", url, "good"), holds("k", "theirs"), never}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(checker(t).Right(promise.Heals, object(c.is...)), "\n")
			if c.want == "" && got != "" || !strings.HasSuffix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
