package printer_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// steering has characters that steer a terminal or hide text.
const steering = "a\u009b31m\u202eb\u200f\ufeff\U000E0041\u0085\u001b\u007fc"

func TestNoFormatSteersTheTerminal(t *testing.T) {
	for _, format := range printer.Formats() {
		var out bytes.Buffer
		rows := printer.Rows([]string{steering, "x"}, func(name string) printer.Row {
			return printer.Row{
				Name: name, Object: map[string]string{"url": name},
				Cells: printer.Cells("NAME", name), Wide: printer.Cells("OTHER", ""),
			}
		})
		if n, err := printer.New(&out, printer.Options{Format: format}).List(rows); err != nil || n != 2 {
			t.Fatal(n, err)
		}
		text := out.String()
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("-o %s prints %q", format, text[at:])
		}
		var got struct{ Items []map[string]string }
		if format != "json" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Items) != 2 || got.Items[0]["url"] != steering {
			t.Errorf("%q, %v of %s", got.Items, err, text)
		}
	}
}
