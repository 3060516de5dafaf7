package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// defaultPause is the initial length in the dialog.
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
		Lines: []string{
			"Pauses the delivery of requests to all fetchers.",
			"Nothing is lost: fetches in flight finish, new requests and timers wait.",
		},
	}
	until := s.deps.Now().Add(operate.Forever)
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
	return s.change(v, v.record("pause", words[2:], 0), func(ctx context.Context) error {
		return s.deps.Conn.Client.PauseFetching(ctx, until)
	})
}

func (s *Server) resume(v *visit, submitted bool) (*page, error) {
	if err := v.need(access.Pause, ""); err != nil {
		return nil, err
	}
	if !submitted {
		return (&dialog{
			Title: "Resume fetching", Button: "Resume", Path: "/resume", Back: "/", Command: "curlctl resume",
			Lines: []string{"The fetchers continue with the waiting requests."},
		}).page(0), nil
	}
	return s.change(v, v.record("resume", nil, 0), s.deps.Conn.Client.ResumeFetching)
}

// change does an action without a job.
func (s *Server) change(v *visit, record audit.Action, do func(context.Context) error) (*page, error) {
	err := audit.Do(v.Context(), s.deps.Conn, record, s.deps.Now, audit.Once(do))
	if err == nil {
		s.model.Poll(v.Context())
	}
	return &page{redirect: "/"}, err
}
