package printer_test

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// steering are characters that steer a terminal or change what is seen.
const steering = "a\u009b31m\u202eb\u200f\ufeff\U000E0041\u0085\u001b\u007fc"

func list(format, name string, object any) string {
	var out bytes.Buffer
	rows := iter.Seq2[printer.Row, error](func(yield func(printer.Row, error) bool) {
		yield(printer.Row{Name: name, Object: object, Cells: []printer.Cell{printer.Text(name)}}, nil)
	})
	if _, err := printer.New(&out, printer.Options{Format: format}).List(printer.Columns("NAME"), rows); err != nil {
		panic(err)
	}
	return out.String()
}

func TestNoFormatSteersTheTerminal(t *testing.T) {
	for _, format := range printer.Formats() {
		text := list(format, steering, map[string]string{"url": steering})
		if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("-o %s prints %q", format, text[at:])
		}
	}
}

func TestWhatIsEscapedIsReadAgain(t *testing.T) {
	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		var got struct{ Items []map[string]string }
		text := list(format, "x", map[string]string{"url": steering})
		if err := read([]byte(text), &got); err != nil || len(got.Items) != 1 || got.Items[0]["url"] != steering {
			t.Errorf("%s: %q, %v of %s", format, got.Items, err, text)
		}
	}
}

func TestColumnsGoInTheOrderOfTheirWorth(t *testing.T) {
	columns := func() []printer.Column {
		return printer.Dropping(printer.Columns("ID", "HOST", "KEY", "ATTEMPTS"), "ATTEMPTS", "HOST")
	}
	row := []printer.Cell{printer.Text("1"), printer.Text(strings.Repeat("h", 30)), printer.Text("key"), printer.Text("6")}
	headers := func() string {
		var out bytes.Buffer
		rows := iter.Seq2[printer.Row, error](func(yield func(printer.Row, error) bool) { yield(printer.Row{Cells: row}, nil) })
		if _, err := printer.New(&out, printer.Options{Format: "table"}).List(columns(), rows); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(strings.SplitN(out.String(), "\n", 2)[0]), " ")
	}
	for width, want := range map[string]string{"": "ID HOST KEY ATTEMPTS", "80": "ID HOST KEY ATTEMPTS", "45": "ID HOST KEY", "30": "ID KEY", "3": "ID KEY"} {
		t.Setenv("COLUMNS", width)
		if got := headers(); got != want {
			t.Errorf("%s columns: %q, want %q", width, got, want)
		}
	}
}
