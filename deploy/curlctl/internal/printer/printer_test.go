package printer_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// steering has characters that steer a terminal or hide text.
const steering = "a\u009b31m\u202eb\u200f\ufeff\U000E0041\u0085\u001b\u007fc"

// list returns a list of one row.
func list(t *testing.T, format string, table printer.Table, row printer.Row) string {
	t.Helper()
	var out bytes.Buffer
	rows := printer.Rows([]printer.Row{row}, func(r printer.Row) printer.Row { return r })
	if _, err := printer.New(&out, printer.Options{Format: format}).List(table, rows); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// named returns a list of one row with a name and an object.
func named(t *testing.T, format, name string, object any) string {
	t.Helper()
	return list(t, format, printer.Table{Columns: "NAME"},
		printer.Row{Name: name, Object: object, Cells: printer.Cells(name)})
}

func TestNoFormatSteersTheTerminal(t *testing.T) {
	for _, format := range printer.Formats() {
		text := named(t, format, steering, map[string]string{"url": steering})
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("-o %s prints %q", format, text[at:])
		}
	}
}

func TestEscapedTextCanBeParsed(t *testing.T) {
	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		var got struct{ Items []map[string]string }
		text := named(t, format, "x", map[string]string{"url": steering})
		if err := read([]byte(text), &got); err != nil || len(got.Items) != 1 || got.Items[0]["url"] != steering {
			t.Errorf("%s: %q, %v of %s", format, got.Items, err, text)
		}
	}
}

func TestNarrowTablesHideColumnsInTheOrderOfDrop(t *testing.T) {
	table := printer.Table{Columns: "ID|HOST|KEY|ATTEMPTS", Drop: "ATTEMPTS|HOST"}
	row := printer.Cells(1, strings.Repeat("h", 30), "key", 6)
	headers := func() string {
		header, _, _ := strings.Cut(list(t, "table", table, printer.Row{Cells: row}), "\n")
		return strings.Join(strings.Fields(header), " ")
	}
	for width, want := range map[string]string{
		"": "ID HOST KEY ATTEMPTS", "80": "ID HOST KEY ATTEMPTS",
		"45": "ID HOST KEY", "30": "ID KEY", "3": "ID KEY",
	} {
		t.Setenv("COLUMNS", width)
		if got := headers(); got != want {
			t.Errorf("%s columns: %q, want %q", width, got, want)
		}
	}
}

// Names have the maximum length of Kubernetes.
func TestNoTableIsWiderThanTheTerminal(t *testing.T) {
	sentence := strings.TrimSpace(strings.Repeat("what went wrong and what to do ", 9))
	table := printer.Table{Columns: "NAMESPACE|CONFIGMAP|KEY|DETAIL", Wide: "URL", Wrap: "DETAIL"}
	row := printer.Row{Cells: printer.Cells(
		strings.Repeat("n", 63), strings.Repeat("c", 253), "key",
		printer.In(printer.Red, sentence), "https://example.com/"+strings.Repeat("u", 2000),
	)}
	for _, width := range []int{40, 80, 120} {
		t.Setenv("COLUMNS", strconv.Itoa(width))
		text := list(t, "table", table, row)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns in %d: %s", n, width, line)
			}
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		before, _, _ := strings.Cut(lines[0], "DETAIL")
		indent := utf8.RuneCountInString(before)
		var words []string
		for _, line := range lines[1:] {
			words = append(words, strings.Fields(string([]rune(line)[indent:]))...)
		}
		if got := strings.Join(words, " "); got != sentence {
			t.Errorf("%d columns: the sentence has become %q", width, got)
		}
	}
	if text := list(t, "wide", table, row); strings.Count(text, "\n") != 2 || !strings.Contains(text, sentence) ||
		strings.Contains(text, "…") {
		t.Errorf("-o wide: %s", text)
	}
}
