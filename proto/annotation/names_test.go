package annotation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamesThatAreNearlyRight(t *testing.T) {
	const unknown, meant = "annotation %s is unknown and has no effect; did you mean %s?", "x-kv8s.io/curl-me-that"
	for name, want := range map[string]string{
		"x-kv8s/curl-me-that":        meant,
		"kv8s.io/curl-me-that":       meant,
		"curl-me-that":               meant,
		"x-kv8s.com/Curl-Mee-That":   meant,
		"x-kv8s/curl-refresh":        "x-kv8s.io/curl-refresh",
		"x-kv8s.io/curl-me-tha":      "curl-me-that",
		"x-kv8s.io/curl-refresh":     "",
		"x-kv8s.io/curl_me_that":     "curl-me-that",
		"x-kv8s.io/crul-me-that":     "curl-me-that",
		"x-kv8s.io/curlmethat":       "curl-me-that",
		"other.io/curl-me-that":      "",
		"x-kv8s/other":               "",
		"k8s.io/cluster-name":        "",
		"a/b/curl-me-that":           "",
		"x-kv8s.io/inject":           "",
		"kubectl.kubernetes.io/last": "",
	} {
		o := object(map[string]string{name: "a=a.example.com"}, nil)
		request, err := grammar(t).ParseObject(o)
		if want != "" {
			want = fmt.Sprintf(unknown, name, want)
		}
		got := strings.Join(texts(t, request), " ")
		if err != nil || request.Present || got != want || grammar(t).Concerns(o) != (want != "") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestALabelInPlaceOfAnAnnotation(t *testing.T) {
	o := object(nil, map[string]string{"x-kv8s.io/curl-me-that": "true", "x-kv8s.io/curl-refersh": "10m", "app": "x"})
	request, err := grammar(t).ParseObject(o)
	got := texts(t, request)
	if want := []string{
		"label x-kv8s.io/curl-me-that has no effect; did you mean the annotation curl-me-that?",
		"label x-kv8s.io/curl-refersh has no effect; did you mean the annotation curl-refresh?",
	}; err != nil || !slices.Equal(got, want) || !grammar(t).Concerns(o) {
		t.Errorf("got %q, %v", got, err)
	}
	if grammar(t).Concerns(object(nil, map[string]string{"app": "curl-me-that"})) {
		t.Error("other labels are not ours")
	}
}

func TestTyposAreLookedForAmongFewNames(t *testing.T) {
	for n, want := range map[int]int{1024: 1024, 1025: 0} {
		names := map[string]string{}
		for i := range n {
			names[fmt.Sprintf("x-kv8s.io/curl-%04x", i)] = ""
		}
		request, _ := grammar(t).ParseObject(&metav1.ObjectMeta{Annotations: names})
		if got := len(request.Problems) + request.Omitted; got != want {
			t.Errorf("%d annotations: got %d problems, want %d", n, got, want)
		}
	}
}
