package isolation

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes the rows as Markdown.
func WriteTable(w io.Writer, rows []Row) error {
	var text strings.Builder
	text.WriteString("| hole | hostile tenant | longest wait without | with | |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		verdict, more := "isolated", ""
		if !r.Isolated() {
			verdict = "HELD UP"
		}
		if r.GaveUp {
			more = "more than "
		}
		fmt.Fprintf(&text, "| %d | %s | %.2f s | %s%.2f s | %s |\n", r.Hole, r.Tenant, r.Without, more, r.With, verdict)
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
