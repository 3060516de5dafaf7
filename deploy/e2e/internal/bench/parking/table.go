package parking

import (
	"fmt"
	"io"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
)

// WriteTable writes the rows as Markdown.
func (rows Rows) WriteTable(w io.Writer) error {
	t := markdown.New("answers after", "host", "keys that wait", "GETs", "slots in use", "parks for each GET")
	for _, r := range rows {
		host := "used before"
		if !r.Known {
			host = "never used before"
		}
		t.Row(fmt.Sprintf("%g s", r.Latency), "%s | %d | %d | %.2f | %.2f", host, r.Waiting, r.Gets, r.Used, r.Parks)
	}
	return t.Write(w)
}
