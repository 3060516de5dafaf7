package console

import (
	"context"
	"net/http"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// purgeWord must be typed for more than wordAbove failures.
const (
	purgeWord = "purge"
	wordAbove = 100
)

func (s *Server) purge(v *visit, submitted bool) (*page, error) {
	sel, err := v.selected(submitted)
	if err != nil {
		return nil, err
	}
	if err := v.need(access.Purge, sel.Namespace); err != nil {
		return nil, err
	}
	n := 0
	for f, err := range sel.failures(v.Context(), s.deps.Conn.Client, &v.unread) {
		if err != nil {
			return nil, err
		}
		n++
		sel.top = max(sel.top, f.ID)
	}
	d := &dialog{
		Title: "Remove failures from the record", Button: "Remove " + printer.Plural(n, "failure"), Path: "/failures/purge",
		Nothing: n == 0, Danger: true,
		Lines: []string{
			"Would remove " + printer.Plural(n, "failure") + " from the record.",
			"The keys stay wanted. Removed failures cannot be replayed.",
		},
		Command: command(append([]string{"curlctl", "failures", "purge"}, sel.words()...)...),
	}
	if n > wordAbove {
		d.Word = purgeWord
	}
	if len(sel.ids) > 0 {
		d.Command = "" // curlctl purges only by filter
	}
	sel.repeat(d, n)
	if submitted && d.Word != "" && strings.TrimSpace(v.FormValue("word")) != d.Word {
		return d.refuse(http.StatusBadRequest, "Type the word "+d.Word+" to confirm."), nil
	}
	record := v.record("purge", sel.words(), n)
	return s.confirm(v, d, submitted, record, func(ctx context.Context, j *jobs.Job) error {
		return audit.Do(ctx, s.deps.Conn, record, s.deps.Now, func(ctx context.Context) (_, _ int, err error) {
			removed, err := s.runPurge(ctx, sel)
			j.Set("removed", removed)
			return removed, n - removed, err
		})
	})
}

// runPurge removes the selected failures, and returns their number.
func (s *Server) runPurge(ctx context.Context, sel selection) (removed int, err error) {
	client := s.deps.Conn.Client
	if len(sel.ids) == 0 {
		return client.PurgeDeadLetters(ctx, sel.Dead)
	}
	for removed, id := range sel.ids {
		if err := client.DeleteDeadLetter(ctx, id); err != nil {
			return removed, err
		}
	}
	return len(sel.ids), nil
}
