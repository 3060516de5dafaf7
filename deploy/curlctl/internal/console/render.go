package console

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed assets
var assets embed.FS

// parseTemplates parses the templates of all pages. They are part of the program, so they are valid.
func parseTemplates() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"grouped":   printer.Grouped,
		"plural":    printer.Plural,
		"until":     func(now time.Time, at *time.Time) string { return printer.Until(now, *at) },
		"age":       func(now, at time.Time) string { return cmp.Or(printer.Age(now, at), "–") },
		"clock":     func(at time.Time) string { return at.UTC().Format(time.TimeOnly) },
		"text":      func(value any) string { return fmt.Sprint(value) },
		"hasPrefix": strings.HasPrefix,
	}).ParseFS(templates, "templates/*.html"))
}

// table has the rows that a command prints.
type table struct {
	// Opens is the column whose cells link to the page of their row.
	Opens string
	// Select adds a checkbox for the ID of each row.
	Select bool
	Rows   []row
}

type row struct {
	Link, ID string
	Cells    []printer.Cell
}

func (t *table) add(printed printer.Row, link, id string) {
	t.Rows = append(t.Rows, row{Link: link, ID: id, Cells: printed.Cells})
}
