package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table is a Markdown table.
type table struct{ strings.Builder }

func newTable(heads ...string) *table {
	t := &table{}
	t.row(heads...)
	t.WriteString("|" + strings.Repeat("---|", len(heads)) + "\n")
	return t
}

func (t *table) row(cells ...string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

// column is one measurement of several that are shown next to each other.
func each[T any](t *table, of []T, name, format string, figure func(T) any) {
	cells := []string{name}
	for _, one := range of {
		cells = append(cells, fmt.Sprintf(format, figure(one)))
	}
	t.row(cells...)
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// sum adds what some programs used, all without names.
func sum(cpu map[string]float64, names ...string) (total float64) {
	for name, used := range cpu {
		if len(names) == 0 || slices.Contains(names, name) {
			total += used
		}
	}
	return total
}
