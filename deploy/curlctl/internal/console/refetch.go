package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

func (s *Server) refetch(v *visit, submitted bool) (*page, error) {
	namespace, name, host := v.FormValue("namespace"), v.FormValue("name"), v.FormValue("host")
	if v.namespace != "" {
		namespace = v.namespace
	}
	if err := v.need(access.Replay, namespace); err != nil {
		return nil, err
	}
	var wants []operate.Want
	for w, err := range readable.Only(&v.unread, s.deps.Conn.Client.Wants(v.Context(), namespace, name)) {
		if err != nil {
			return nil, err
		}
		if host == "" || pipeline.HostIs(w.Want.GetUrl(), host) {
			w.Want = nil // read again when its turn comes
			wants = append(wants, w)
		}
	}
	rateText, _ := v.paceFields()
	d := &dialog{
		Title: "Fetch now", Button: "Fetch " + printer.Plural(len(wants), "key"), Path: "/refetch", Nothing: len(wants) == 0, Rate: &rateText,
		Lines: []string{"Would fetch " + printer.Plural(len(wants), "key") + " now.", "What has not changed at its URL is not written."},
		Back:  "/wants",
	}
	for _, h := range []hidden{{"namespace", namespace}, {"name", name}, {"host", host}, {"count", strconv.Itoa(len(wants))}, {"job", rand.Text()}} {
		if h.Value != "" {
			d.Hidden = append(d.Hidden, h)
		}
	}
	pace, err := readPace(rateText, "")
	words := refetchWords(namespace, name, host)
	if host == "" {
		d.Command = command(append([]string{"curlctl", "refetch"}, words...)...)
	}
	if err != nil {
		return d.refuse(http.StatusBadRequest, err.Error()), nil
	}
	record := v.record("refetch", words, len(wants))
	return s.confirm(v, d, submitted, record, func(ctx context.Context, j *jobs.Job) error {
		return s.runRefetch(ctx, j, wants, pace, record)
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

func (s *Server) runRefetch(ctx context.Context, j *jobs.Job, wants []operate.Want, pace replay.Pace, record operator.Action) error {
	end, err := operator.Begin(ctx, s.deps.Conn, record, s.deps.Now)
	if err != nil {
		return err
	}
	done, err := replay.Refetch(ctx, s.deps.Conn.Client, wants, pace, func(n int) { j.Set("asked", n) })
	return errors.Join(err, end(ctx, done, len(wants)-done))
}
