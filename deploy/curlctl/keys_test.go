package curlctl_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

// One key that has failed for a year does not hide when its host went down.
func TestAGroupSaysForWhomAndWhenMostOfItBegan(t *testing.T) {
	down := time.Date(2026, 11, 29, 3, 26, 0, 0, time.UTC)
	var all []keys.Key
	for i, namespace := range []string{"shop", "shop", "shop", "a", "a", "b", "c", "d"} {
		since := down.Add(time.Duration(i) * time.Second)
		if i == 0 {
			since = down.AddDate(-1, 0, 0)
		}
		all = append(all, keys.Key{
			ConfigMapKey: keys.ConfigMapKey{Namespace: namespace}, Host: "example.com",
			Condition: keystate.Condition{State: keystate.Failing, Reason: "Timeout", Since: since},
		})
	}
	all = append(all, keys.Key{Condition: keystate.Condition{State: keystate.OK}})
	groups := keys.Groups(all)
	if len(groups) != 1 || groups[0].Count != 8 || groups[0].Since.Sub(down).Abs() > time.Minute {
		t.Fatalf("%+v", groups)
	}
	if got := groups[0].Namespaces.String(); got != "shop 3, a 2, b 1, 2 more" {
		t.Error(got)
	}
	if got := keys.Count(all).String(); got != "8 of 9 keys failing" {
		t.Error(got)
	}
}

// The watcher leaves such a key alone, too.
func TestAKeyOfAnotherInstallationIsRefused(t *testing.T) {
	object := keys.ReadObject(&metav1.ObjectMeta{Annotations: map[string]string{
		annotation.DefaultKey: "k=example.com", "example.org/curl-me-that": "k=example.com",
		annotation.StatusKey: `{"k":{"url":"https://example.com","annotation":"example.org/curl-me-that"}}`,
	}}, nil)
	got := keystate.Of(object.Spec(object.Request.Pairs[0]), object.Shown("k"), nil, time.Now())
	if got.State != keystate.Refused || !strings.Contains(got.Message, "example.org/curl-me-that") {
		t.Errorf("%+v", got)
	}
}

func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"20": "20/s", "20/s": "20/s", "600/m": "10/s", "1800/h": "0.5/s", "0": "0", "0/m": "0", "0.5": "0.5/s",
	} {
		var r curlctl.Rate
		if err := r.Set(text); err != nil || r.String() != want {
			t.Errorf("%q is %s, %v, want %s", text, r.String(), err, want)
		}
	}
	for _, text := range []string{"", "/s", "x", "-1", "NaN", "Inf", "1e999", "20/d", "20/", "20/s/s", "20 /s"} {
		r := curlctl.Rate(7)
		if err := r.Set(text); err == nil || r != 7 {
			t.Errorf("%q is %s, %v", text, r.String(), err)
		}
	}
}

func TestADifferenceShowsTheLinesThatChanged(t *testing.T) {
	lines := func(changed ...int) []byte {
		var b strings.Builder
		for n := range 100 {
			fmt.Fprintf(&b, "line %d\n", n+1)
			for _, c := range changed {
				if c == n {
					b.WriteString("added\n")
				}
			}
		}
		return []byte(b.String())
	}
	many := func(line string) []byte { return []byte(strings.Repeat(line, 500_000)) }
	for title, c := range map[string]struct {
		from, to []byte
		want     string
	}{
		"a line in the middle": {lines(), lines(49), "--- a\n+++ b\n@@ -48,6 +48,7 @@\n line 48\n line 49\n line 50\n" +
			"+added\n line 51\n line 52\n line 53\n"},
		"equal":              {lines(), lines(), "--- a\n+++ b\n"},
		"nothing before":     {nil, []byte("x"), "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-\n+x\n"},
		"control characters": {[]byte("x"), []byte("\x1b[2J"), "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-x\n+\\u001b[2J\n"},
		"binary":             {[]byte("\xff"), []byte("x"), "Binary contents: a has 1 byte, b has 1 byte.\n"},
		"very many changes": {
			many("a\n"), many("b\n"),
			"There are too many changes to show, in lines 1 to 500001 of a and lines 1 to 500001 of b.\n",
		},
	} {
		t.Run(title, func(t *testing.T) {
			if got := printer.Difference(c.from, c.to, [2]string{"a", "b"}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
