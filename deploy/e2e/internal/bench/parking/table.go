package parking

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes the rows as Markdown.
func WriteTable(w io.Writer, rows []Row) error {
	var text strings.Builder
	text.WriteString("| answers after | host | keys that wait | GETs | slots in use | parks for each GET |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		host := "used before"
		if !r.Known {
			host = "never used before"
		}
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %.2f | %.2f |\n", r.Latency, host, r.Waiting, r.Gets, r.Used, r.Parks)
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
