// Package markdown writes the tables of the benchmark.
package markdown

import (
	"fmt"
	"io"
	"strings"
)

// Table is one table. Cells hold no "|".
type Table struct{ text strings.Builder }

// New begins a table with its heads.
func New(heads ...string) *Table {
	t := new(Table)
	t.line(heads)
	t.text.WriteString("|" + strings.Repeat("---|", len(heads)) + "\n")
	return t
}

// Row adds a row: the first cell as it is, and the others by a format in which
// "|" is between two of them.
func (t *Table) Row(name, format string, arguments ...any) {
	cells := strings.Split(fmt.Sprintf(format, arguments...), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	t.line(append([]string{name}, cells...))
}

func (t *Table) line(cells []string) { t.text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

// Write writes the table.
func (t *Table) Write(w io.Writer) error {
	if _, err := io.WriteString(w, t.text.String()); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
