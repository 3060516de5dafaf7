package console

import (
	"context"
	"errors"
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
		return s.runPurge(ctx, j, sel, record)
	})
}

func (s *Server) runPurge(ctx context.Context, j *jobs.Job, sel selection, record audit.Action) error {
	end, err := audit.Begin(ctx, s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return err
	}
	removed := 0
	if len(sel.ids) == 0 {
		removed, err = s.deps.Conn.Client.PurgeDeadLetters(ctx, sel.Dead)
	}
	for _, id := range sel.ids {
		if err = s.deps.Conn.Client.DeleteDeadLetter(ctx, id); err != nil {
			break
		}
		removed++
	}
	j.Set("removed", removed)
	return errors.Join(err, end(ctx, removed, record.Selected-removed))
}
