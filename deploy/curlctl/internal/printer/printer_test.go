package printer_test

import (
	"bytes"
	"encoding/json"
	"errors"
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

func TestAnErrorKeepsTheRowsBeforeIt(t *testing.T) {
	for format, want := range map[string]string{
		"table": "NAME\na\n", "name": "a\n", "json": "{\"items\": [\n  \"a\"\n]}\n",
	} {
		var out bytes.Buffer
		lost := errors.New("lost")
		n, err := printer.New(&out, printer.Options{Format: format}).List(func(yield func(printer.Row, error) bool) {
			_ = yield(printer.Row{Name: "a", Object: "a", Cells: printer.Cells("NAME", "a")}, nil) && yield(printer.Row{}, lost)
		})
		if n != 1 || !errors.Is(err, lost) || out.String() != want {
			t.Errorf("-o %s prints %q, %d, %v", format, out.String(), n, err)
		}
	}
}

func TestAHintHasItsOwnLineNextToProgress(t *testing.T) {
	var out bytes.Buffer
	p := printer.OnTerminal(printer.New(&out, printer.Options{}))
	progress := p.Progress("done", 2)
	progress(1)
	p.Linef("Lost the connection.")
	progress(2)
	p.Linef("Found it.")
	if want := "\r1 of 2 done\nLost the connection.\n\r2 of 2 done\nFound it.\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}
