package printer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

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
