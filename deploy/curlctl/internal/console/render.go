package console

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

const layout = "layout.html"

// newPages returns the templates by name.
func newPages() (map[string]*template.Template, error) {
	pages := map[string]*template.Template{}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	base, err := template.New(layout).Funcs(functions()).ParseFS(templateFiles, "templates/"+layout,
		"templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("parse templates: %w", err)
	}
	for _, file := range files {
		clone, err := base.Clone()
		if err == nil {
			clone, err = clone.ParseFS(templateFiles, file)
		}
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		pages[path.Base(file)] = clone
	}
	return pages, nil
}

// functions returns the functions of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"grouped":   func(n any) string { return printer.Grouped(integer(n)) },
		"plural":    func(n any, noun string) string { return printer.Plural(integer(n), noun) },
		"until":     func(now time.Time, at *time.Time) string { return printer.Until(now, *at) },
		"age":       func(now, at time.Time) string { return cmp.Or(printer.Age(now, at), "–") },
		"clock":     func(at time.Time) string { return at.UTC().Format(time.TimeOnly) },
		"text":      func(value any) string { return fmt.Sprint(value) },
		"hasPrefix": strings.HasPrefix,
	}
}

func integer(n any) int {
	i, _ := strconv.Atoi(fmt.Sprint(n)) // templates pass only integers
	return i
}

// table has the rows that a command prints.
type table struct {
	Rows []row
	// Select adds a checkbox for the ID of each row.
	Select bool
	// hidden are columns that pages do not show.
	hidden []string
}

type row struct {
	ID    string
	Cells []cell
}

// cell has a Link if it opens its row.
type cell struct{ Label, Text, Class, Link string }

// add adds a row, with its ID and the address that it opens (empty: none).
func (t *table) add(printed printer.Row, link, id string) {
	r := row{ID: id}
	for _, p := range slices.Concat(printed.Cells, printed.Wide) {
		if slices.Contains(t.hidden, p.Column) {
			continue
		}
		c := cell{Label: p.Column[:1] + strings.ToLower(p.Column[1:]), Text: p.Text}
		switch p.Column {
		case "STATE", "NOW":
			c.Class = "state"
		case "MESSAGE", "DETAIL":
			c.Class = "url"
		case "URL":
			c.Class, c.Label = "url", p.Column
		case "HOST", "NAMESPACE", "KEY":
			c.Class = "name"
		case "CONFIGMAP":
			c.Class, c.Label = "name", "ConfigMap"
		case "ID":
			c.Label = p.Column
		}
		if p.Column == "ID" || p.Column == "KEY" && id == "" || p.Column == "HOST" && printed.Cells[0].Column == "KEYS" {
			c.Link = link
		}
		r.Cells = append(r.Cells, c)
	}
	t.Rows = append(t.Rows, r)
}
