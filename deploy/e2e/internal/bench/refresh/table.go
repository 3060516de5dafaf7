package refresh

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// WriteTable writes the report as Markdown.
func (r Report) WriteTable(w io.Writer) error {
	var total time.Duration
	text := fmt.Sprintf("| %d keys every %s, all 304 | |\n|---|---|\n", r.Keys, Every)
	row := func(name, format string, arguments ...any) {
		text += fmt.Sprintf("| %s | %s |\n", name, fmt.Sprintf(format, arguments...))
	}
	row("refreshes a second", "%.0f of %.0f", r.PerSecond, float64(r.Keys)/Every.Seconds())
	row("other responses, results", "%d, %d", r.Other, r.Results)
	row("messages stored for a refresh", "%.2f", r.Stored)
	for _, name := range slices.Sorted(maps.Keys(r.CPU)) {
		total += r.CPU[name]
		row("CPU of "+name+" for a refresh", "%.3f ms", r.CPU[name].Seconds()*1000)
	}
	row("CPU for a refresh", "%.3f ms", total.Seconds()*1000)
	for _, name := range slices.Sorted(maps.Keys(r.Memory)) {
		row("RSS of "+name, "%d MiB", r.Memory[name].RSS>>20)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
