package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// defaultPause is in the field of the dialog.
const defaultPause = "1h"

func (s *Server) pause(v *visit, submitted bool) (*page, error) {
	if err := v.need(access.Pause, ""); err != nil {
		return nil, err
	}
	limit := defaultPause
	if v.Form.Has("for") {
		limit = strings.TrimSpace(v.FormValue("for"))
	}
	d := &dialog{
		Title: "Pause fetching", Button: "Pause", Path: "/pause", Back: "/", For: &limit,
		Lines: []string{"Stops the delivery of requests to all fetchers.", "Nothing is lost: what is in work ends, what comes waits, timers fire into the backlog."},
	}
	until := s.deps.Now().Add(overview.Forever)
	words := []string{"curlctl", "pause"}
	if limit != "" {
		period, err := duration.Parse(limit)
		if bad := err != nil || period <= 0; bad {
			return d.refuse(http.StatusBadRequest, fmt.Sprintf("for: %q is not a duration such as 30m or 2h", limit)), nil
		}
		until = s.deps.Now().Add(period)
		words = append(words, "--for="+duration.Format(period))
	}
	d.Command = command(words...)
	if !submitted {
		return d.page(0), nil
	}
	return s.change(v, v.record("pause", words[2:], 0), func(ctx context.Context) error { return s.deps.Conn.Client.PauseFetching(ctx, until) })
}

func (s *Server) resume(v *visit, submitted bool) (*page, error) {
	if err := v.need(access.Pause, ""); err != nil {
		return nil, err
	}
	if !submitted {
		return (&dialog{
			Title: "Let fetching go on", Button: "Resume", Path: "/resume", Back: "/", Command: "curlctl resume",
			Lines: []string{"The fetchers go on with what has waited."},
		}).page(0), nil
	}
	return s.change(v, v.record("resume", nil, 0), s.deps.Conn.Client.ResumeFetching)
}

// change does at once what needs no job.
func (s *Server) change(v *visit, record operator.Action, do func(context.Context) error) (*page, error) {
	end, err := operator.Begin(v.Context(), s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return nil, err
	}
	if err := do(v.Context()); err != nil {
		return nil, err
	}
	s.model.Poll(v.Context())
	return &page{redirect: "/"}, end(v.Context(), 1, 0)
}
