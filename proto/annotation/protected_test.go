package annotation_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

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
