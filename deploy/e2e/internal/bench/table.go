package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// cell is one figure by its JSON name.
type cell struct{ name, value string }

// WriteTable writes figures as Markdown: one column for each measurement of a few, or one
// row for each of many.
func WriteTable(w io.Writer, figures any) error {
	all := reflect.ValueOf(figures)
	if all.Kind() != reflect.Slice {
		all = reflect.Append(reflect.MakeSlice(reflect.SliceOf(all.Type()), 0, 1), all)
	}
	var names []string
	columns := make([]map[string]string, all.Len())
	for i := range columns {
		columns[i] = map[string]string{}
		for _, c := range flatten("", all.Index(i)) {
			columns[i][c.name] = c.value
			if !slices.Contains(names, c.name) {
				names = append(names, c.name)
			}
		}
	}
	var rows [][]string
	for _, name := range names {
		row := []string{name}
		for _, column := range columns {
			row = append(row, column[name])
		}
		rows = append(rows, row)
	}
	if len(columns) > len(names) {
		rows = transposed(rows)
	}
	for i, row := range rows {
		line := "| " + strings.Join(row, " | ") + " |\n"
		if i == 0 {
			line += "|" + strings.Repeat("---|", len(row)) + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

func transposed(rows [][]string) [][]string {
	turned := make([][]string, len(rows[0]))
	for _, row := range rows {
		for i, value := range row {
			turned[i] = append(turned[i], value)
		}
	}
	return turned
}

// flatten returns the figures in a value. Those of a struct or a map have its name before theirs.
func flatten(name string, v reflect.Value) (cells []cell) {
	switch v.Kind() {
	case reflect.Struct:
		for field, value := range v.Fields() {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if tag != "-" {
				cells = append(cells, flatten(strings.TrimPrefix(name+"."+tag, "."), value)...)
			}
		}
		return cells
	case reflect.Map:
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()),
			func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }) {
			cells = append(cells, flatten(name+"."+key.String(), v.MapIndex(key))...)
		}
		return cells
	case reflect.Float64:
		return []cell{{name, fmt.Sprintf("%.3g", v.Float())}}
	default:
		return []cell{{name, fmt.Sprint(v.Interface())}}
	}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// sum adds the usage of the named programs, or of all if there are no names.
func sum(cpu map[string]float64, names ...string) (total float64) {
	for name, used := range cpu {
		if len(names) == 0 || slices.Contains(names, name) {
			total += used
		}
	}
	return total
}
