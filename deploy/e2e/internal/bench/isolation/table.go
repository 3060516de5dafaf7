package isolation

import (
	"io"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
)

// WriteTable writes the rows as Markdown.
func (rows Rows) WriteTable(w io.Writer) error {
	t := markdown.New("hole", "hostile tenant", "longest wait without", "with", "")
	for _, r := range rows {
		verdict, more := "isolated", ""
		if !r.isolated() {
			verdict = "HELD UP"
		}
		if r.GaveUp {
			more = "more than "
		}
		t.Row(strconv.Itoa(r.Hole), "%s | %.2f s | %s%.2f s | %s", r.Tenant, r.Without, more, r.With, verdict)
	}
	return t.Write(w)
}
