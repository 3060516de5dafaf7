package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// actionRoutes adds the routes of dialogs, actions and jobs.
func (s *Server) actionRoutes(mux *http.ServeMux) {
	for path, act := range map[string]func(*visit, bool) (*page, error){
		"/failures/replay": s.replay, "/failures/purge": s.purge, "/refetch": s.refetch,
		"/pause": s.pause, "/resume": s.resume,
	} {
		mux.HandleFunc("GET "+path, s.visited(func(v *visit) (*page, error) { return act(v, false) }))
		mux.HandleFunc("POST "+path, s.visited(func(v *visit) (*page, error) {
			if j := s.jobs.Find(v.FormValue("job")); j != nil { // submitted twice
				return &page{redirect: v.withNamespace("/jobs/" + j.ID)}, nil
			}
			return act(v, true)
		}))
	}
	mux.HandleFunc("GET /jobs/{id}", s.visited(s.jobPage))
	mux.HandleFunc("POST /jobs/{id}/stop", s.visited(s.stop))
}

func (s *Server) jobPage(v *visit) (*page, error) {
	j := s.jobs.Find(v.PathValue("id"))
	if j == nil || v.namespace != "" && j.Namespace != v.namespace {
		return nil, notFound("There is no such job any more. The audit has its record.")
	}
	view := j.View()
	return &page{template: "job.html", title: "Job " + view.Action, refresh: view.Running, data: map[string]any{
		"Job": view, "Mine": j.Person == v.person.Name,
	}}, nil
}

// stop stops a job that the person has started.
func (s *Server) stop(v *visit) (*page, error) {
	j := s.jobs.Find(v.PathValue("id"))
	if j == nil || j.Person != v.person.Name {
		return nil, notFound("%s has no such job.", v.person.Name)
	}
	j.Stop()
	return &page{redirect: v.withNamespace("/jobs/" + j.ID)}, nil
}

// withNamespace adds the namespace to a path if the person may see only one.
func (v *visit) withNamespace(path string) string {
	if v.namespace != "" {
		path += "?namespace=" + url.QueryEscape(v.namespace)
	}
	return path
}

// defaultPause is the initial duration in the dialog.
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
	return s.perform(v, v.record("pause", words[2:], 0), func(ctx context.Context) error {
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
	return s.perform(v, v.record("resume", nil, 0), s.deps.Conn.Client.ResumeFetching)
}

// perform does a short action, which needs no job.
func (s *Server) perform(v *visit, record audit.Action, do func(context.Context) error) (*page, error) {
	err := audit.Do(v.Context(), s.deps.Conn, record, s.deps.Now, audit.Once(do))
	if err == nil {
		s.model.Poll(v.Context())
	}
	return &page{redirect: "/"}, err
}

// purgeWord must be typed to purge more than wordAbove failures.
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
	for f, err := range sel.failures(v.Context(), v.client) {
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

func (s *Server) refetch(v *visit, submitted bool) (*page, error) {
	namespace, name, host := cmp.Or(v.namespace, v.FormValue("namespace")), v.FormValue("name"), v.FormValue("host")
	if err := v.need(access.Replay, namespace); err != nil {
		return nil, err
	}
	var selected []pipeline.Key
	for w, err := range v.client.Wants(v.Context(), namespace, name) {
		if err != nil {
			return nil, err
		}
		if host == "" || pipeline.HostIs(w.Want.GetUrl(), host) {
			selected = append(selected, w.Key)
		}
	}
	rateText := v.rateField()
	d := &dialog{
		Title: "Fetch now", Button: "Fetch " + printer.Plural(len(selected), "key"), Path: "/refetch", Back: "/wants",
		Nothing: len(selected) == 0, Rate: &rateText,
		Lines: []string{
			"Would fetch " + printer.Plural(len(selected), "key") + " now.", "Unchanged bodies are not written.",
		},
	}
	d.hide("namespace", namespace)
	d.hide("name", name)
	d.hide("host", host)
	d.hide("count", strconv.Itoa(len(selected)))
	d.hide("job", rand.Text())
	rate, err := readRate(rateText)
	words := refetchWords(namespace, name, host)
	d.Command = command(append([]string{"curlctl", "refetch"}, words...)...)
	if err != nil {
		return d.refuse(http.StatusBadRequest, err.Error()), nil
	}
	record := v.record("refetch", words, len(selected))
	return s.confirm(v, d, submitted, record, func(ctx context.Context, j *jobs.Job) error {
		return audit.Do(ctx, s.deps.Conn, record, s.deps.Now, func(ctx context.Context) (_, _ int, err error) {
			done, err := replay.Refetch(ctx, s.deps.Conn.Client, selected, rate, func(n int) { j.Set("requested", n) })
			return done, len(selected) - done, err
		})
	})
}

func refetchWords(namespace, name, host string) []string {
	var words []string
	switch {
	case namespace != "" && name != "":
		words = []string{namespace + "/" + name}
	case namespace != "":
		words = []string{"--all", "--namespace=" + namespace}
	default:
		words = []string{"--all"}
	}
	if host != "" {
		words = append(words, "--host="+host)
	}
	return words
}
