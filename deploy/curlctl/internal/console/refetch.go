package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func (s *Server) refetch(v *visit, submitted bool) (*page, error) {
	namespace, name, host := cmp.Or(v.namespace, v.FormValue("namespace")), v.FormValue("name"), v.FormValue("host")
	if err := v.need(access.Replay, namespace); err != nil {
		return nil, err
	}
	var selected []pipeline.Key
	for w, err := range readable.Only(&v.unread, s.deps.Conn.Client.Wants(v.Context(), namespace, name)) {
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
	if host == "" {
		d.Command = command(append([]string{"curlctl", "refetch"}, words...)...)
	}
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
