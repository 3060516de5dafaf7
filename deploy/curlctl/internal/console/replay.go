package console

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

const (
	// maxRequests is the maximum number of requests of a form, and rate limits them per second, so that the response
	// comes in time.
	maxRequests = 500
	rate        = 50
	// alsoRecovered is the field to also replay keys that were fetched since.
	alsoRecovered = "also-recovered"
)

// dialog asks for confirmation, or reports what its form did.
type dialog struct {
	Title, Button, Path, Back string
	// Lines describe the action or its result.
	Lines []string
	// Hidden fields repeat the selection.
	Hidden url.Values
	// Also is the address of the dialog that also replays recovered keys (empty: there are none).
	Also string
	// Nothing means that there is nothing to confirm.
	Nothing bool
	command string
}

// answer shows the dialog for n of the items, or after its form was sent, does it and reports the result. More than
// maxRequests are left to the command.
func (s *Server) answer(v *visit, d *dialog, items []*replay.Item, n int, done func() string) (*page, error) {
	if n > maxRequests {
		d.Lines = append(d.Lines, fmt.Sprintf("The console requests at most %d at once. Use the command.", maxRequests))
	}
	d.Nothing = n == 0 || n > maxRequests
	if v.Method == http.MethodPost && !d.Nothing {
		if err := replay.Publish(v.Context(), s.deps.Client, items, rate, nil); err != nil {
			return nil, err
		}
		d.Nothing, d.Also = true, ""
		d.Lines = append([]string{done()}, replay.Skipped(replay.Verdicts(items))...)
	}
	return &page{template: "dialog.html", title: d.Title, data: d, command: d.command}, nil
}

// mayReplay returns an error if the NATS user may not replay.
func (v *visit) mayReplay() error {
	if a := v.server.access; !a.mayReplay {
		return &problem{http.StatusForbidden, a.name + " may not replay and refetch."}
	}
	return nil
}

// replay asks whether to replay the selected failures, and does so when the form is sent, without failures that are
// newer than the dialog. With more than 2 maxRequests failures, it only shows the command.
func (s *Server) replay(v *visit) (*page, error) {
	sel, err := v.selected()
	if err == nil {
		err = v.mayReplay()
	}
	if err != nil {
		return nil, err
	}
	top, err := strconv.ParseUint(v.FormValue("top"), 10, 64)
	switch {
	case err == nil:
		sel.Below = top + 1
	case v.Method == http.MethodPost:
		return nil, badRequest(errors.New("top: the form is incomplete, open the dialog again"))
	}
	words := append([]string{"curlctl", "replay"}, sel.Words()...)
	if len(words) == 2 {
		words = append(words, "--all")
	}
	words = append(words, fmt.Sprintf("--rate=%d/s", rate))
	if v.FormValue(alsoRecovered) != "" {
		sel.Values.Set(alsoRecovered, "1")
		words = append(words, "--"+alsoRecovered)
	}
	d := &dialog{
		Title: "Replay failures", Path: "/failures/replay", Back: sel.At("/failures"), Hidden: sel.Values,
		command: command(words...),
	}
	var found []operate.DeadLetter
	for f, err := range sel.Failures(v.Context(), v.client) {
		if err != nil {
			return nil, err
		}
		if found = append(found, f); len(found) > 2*maxRequests {
			d.Lines = []string{"Would replay more than " + printer.Plural(2*maxRequests, "failure") + "."}
			return s.answer(v, d, nil, len(found), nil)
		}
		top = max(top, f.ID)
	}
	items, err := replay.Plan(v.Context(), v.client, each(found), sel.Values.Has(alsoRecovered))
	if err != nil {
		return nil, err
	}
	counts, of := replay.Verdicts(items), " of "+printer.Plural(len(items), "failure")+"."
	if counts[replay.Recovered] > 0 {
		d.Also = sel.At("/failures/replay", alsoRecovered, "1")
	}
	d.Button = "Replay " + printer.Plural(counts[replay.Wanted], "failure")
	d.Lines = append([]string{"Would replay " + printer.Grouped(counts[replay.Wanted]) + of}, replay.Skipped(counts)...)
	d.Hidden.Set("top", strconv.FormatUint(top, 10))
	return s.answer(v, d, items, counts[replay.Wanted], func() string {
		return "Replayed " + printer.Grouped(replay.Verdicts(items)[replay.Replayed]) + of +
			" The page Failures shows their new state."
	})
}

func each(all []operate.DeadLetter) iter.Seq2[operate.DeadLetter, error] {
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, f := range all {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// refetch asks whether to fetch the selected keys, and does so when the form is sent.
func (s *Server) refetch(v *visit) (*page, error) {
	if err := v.mayReplay(); err != nil {
		return nil, err
	}
	r := replay.Refetch{Namespace: v.FormValue("namespace"), Name: v.FormValue("name"), Host: v.FormValue("host")}
	items, err := r.Items(v.Context(), v.client)
	if err != nil {
		return nil, err
	}
	all := printer.Plural(len(items), "key")
	d := &dialog{
		Title: "Fetch now", Button: "Fetch " + all, Path: "/refetch", Back: "/wants",
		Lines:   []string{"Would fetch " + all + " now.", "Unchanged bodies are not written."},
		Hidden:  url.Values{"namespace": {r.Namespace}, "name": {r.Name}, "host": {r.Host}},
		command: command(append(append([]string{"curlctl", "refetch"}, r.Words()...), fmt.Sprintf("--rate=%d/s", rate))...),
	}
	return s.answer(v, d, items, len(items), func() string {
		counts := replay.Verdicts(items)
		return "Requested " + printer.Grouped(counts[replay.Replayed]+counts[replay.Already]) + " of " + all +
			". The page Wanted shows their new state."
	})
}
