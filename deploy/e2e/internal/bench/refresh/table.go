package refresh

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
)

// WriteTable writes the report as Markdown.
func (r Report) WriteTable(w io.Writer) error {
	t := markdown.New(fmt.Sprintf("%d keys every %s, all 304, replicas: %d", r.Keys, Every, r.Replicas), "")
	t.Row("refreshes a second", "%.0f of %.0f", r.PerSecond, float64(r.Keys)/Every.Seconds())
	t.Row("other responses, results", "%d, %d", r.Other, r.Results)
	t.Row("messages stored for a refresh", "%.2f", r.Stored)
	for _, name := range slices.Sorted(maps.Keys(r.CPU)) {
		t.Row("CPU of "+name+" for a refresh", "%.3f ms", r.CPU[name])
	}
	t.Row("CPU for a refresh", "%.3f ms", r.total())
	t.Row("CPU for a bare GET with its 304, client and host", "%.3f ms", r.Bare)
	t.Row("CPU for a refresh ÷ for a bare GET", "%.1f", r.Ratio)
	for _, name := range slices.Sorted(maps.Keys(r.Memory)) {
		t.Row("RSS of "+name, "%d MiB", r.Memory[name].RSS>>20)
	}
	return t.Write(w)
}
