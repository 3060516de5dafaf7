package annotation_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*annotation.Options){
		"no key":        func(o *annotation.Options) { o.Keys = nil },
		"empty key":     func(o *annotation.Options) { o.Keys = []string{""} },
		"no prefix":     func(o *annotation.Options) { o.Keys = []string{"curl-me-that"} },
		"bad prefix":    func(o *annotation.Options) { o.Keys = []string{"under_score/curl"} },
		"refresh":       func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.RefreshName} },
		"now":           func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.NowName} },
		"suspend":       func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.SuspendName} },
		"sha256":        func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.SHA256Name} },
		"status":        func(o *annotation.Options) { o.Keys = []string{annotation.StatusKey} },
		"key twice":     func(o *annotation.Options) { o.Keys = []string{annotation.LegacyKey, annotation.LegacyKey} },
		"no scheme":     func(o *annotation.Options) { o.DefaultScheme = "" },
		"ftp":           func(o *annotation.Options) { o.DefaultScheme = "ftp" },
		"negative":      func(o *annotation.Options) { o.MinRefresh = -1 },
		"above a year":  func(o *annotation.Options) { o.MinRefresh = annotation.MaxRefresh + 1 },
		"line in a key": func(o *annotation.Options) { o.Keys = []string{"example.com/a\nb"} },
	} {
		options := annotation.Defaults()
		change(&options)
		if _, err := annotation.New(options); err == nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNewWithOtherSettings(t *testing.T) {
	g, err := annotation.New(annotation.Options{Keys: []string{"example.com/get"}, DefaultScheme: "http"})
	if err != nil {
		t.Fatal(err)
	}
	request, err := g.Parse(map[string]string{
		annotation.DefaultKey:      "not correct",
		"example.com/get":          "a=e.example.com",
		"example.com/curl-refresh": "1s",
	})
	if url, _ := request.URL("a"); err != nil || url != "http://e.example.com" || request.Refresh != time.Second {
		t.Errorf("got %+v, %v", request, err)
	}
}

func TestProtects(t *testing.T) {
	for _, c := range []struct {
		namespace, name string
		want            bool
	}{
		{"default", "app", false},
		{"default", "kube-root-ca.crt", true},
		{"kube-system", "app", true},
		{"kube-systems", "app", false},
	} {
		if got := annotation.Protects(annotation.DefaultProtected(), c.namespace, c.name); got != c.want {
			t.Errorf("%s/%s: got %t", c.namespace, c.name, got)
		}
	}
}

func TestSelectorExcludesTheIgnoreLabel(t *testing.T) {
	selector, err := labels.Parse(annotation.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if selector.Matches(labels.Set{annotation.IgnoreLabel: annotation.IgnoreValue}) || !selector.Matches(labels.Set{}) {
		t.Errorf("%q does not exclude only %s=%s", annotation.Selector, annotation.IgnoreLabel, annotation.IgnoreValue)
	}
}
