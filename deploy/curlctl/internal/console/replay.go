package console

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
)

const (
	// maxRequests is the maximum number of requests of a form, and rate limits them per second, so that the response
	// comes in time.
	maxRequests = 500
	rate        = 50
	// alsoRecovered is the field to also replay keys that were fetched since.
	alsoRecovered = "also-recovered"
)

// errTooMany means that more than maxRequests are left to the command.
var errTooMany = &problem{text: fmt.Sprintf("The console requests at most %d at once. Use the command.", maxRequests)}

// dialog asks for confirmation, or reports what its form did.
type dialog struct {
	Button, Back string
	// Lines describe the action or its result.
	Lines []string
	// Hidden fields repeat the selection.
	Hidden url.Values
	// Also is the address of the dialog that also replays recovered keys (empty: there are none).
	Also string
	// Nothing means that there is nothing to confirm.
	Nothing bool

	title   string
	command []string
}

// answer shows the dialog for n of the items, or after its form was sent, does it and reports the result.
func (s *Server) answer(v *visit, d *dialog, items []*replay.Item, n int, done func() string) (*page, error) {
	d.Nothing = n == 0
	if v.Method == http.MethodPost && n > 0 {
		if err := replay.Publish(v.Context(), s.deps.Conn.Client, items, rate, nil); err != nil {
			return nil, err
		}
		d.Nothing, d.Also = true, ""
		d.Lines = append([]string{done()}, replay.Skipped(replay.Verdicts(items))...)
	}
	return &page{
		template: "dialog.html", Title: d.title, Data: d,
		Command: command(append(d.command, fmt.Sprintf("--rate=%d/s", rate))...),
	}, nil
}

// mayReplay returns an error if the NATS user may not replay.
func (v *visit) mayReplay() error {
	if a := v.server.access; !a.mayReplay {
		return &problem{http.StatusForbidden, a.name + " may not replay and refetch."}
	}
	return nil
}

// replay asks whether to replay the selected failures, and does so when the form is sent, without failures that are
// newer than the dialog.
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
	if v.FormValue(alsoRecovered) != "" {
		sel.Values.Set(alsoRecovered, "1")
		words = append(words, "--"+alsoRecovered)
	}
	d := &dialog{title: "Replay failures", Back: sel.At("/failures"), Hidden: sel.Values, command: words}
	items, err := replay.Failures{Namespace: sel.Namespace, AlsoRecovered: sel.Values.Has(alsoRecovered)}.
		Items(v.Context(), v.client, atMost(maxRequests, sel.Failures(v.Context(), v.client)))
	if errors.Is(err, errTooMany) {
		d.Lines = []string{errTooMany.Error()}
		return s.answer(v, d, nil, 0, nil)
	}
	if err != nil {
		return nil, err
	}
	counts, of := replay.Verdicts(items), " of "+printer.Plural(len(items), "failure")+"."
	if counts[replay.Recovered] > 0 {
		d.Also = sel.At("/failures/replay", alsoRecovered, "1")
	}
	if len(items) > 0 { // the newest first
		top = max(top, items[0].ID)
	}
	d.Hidden.Set("top", strconv.FormatUint(top, 10))
	d.Button = "Replay " + printer.Plural(counts[replay.StillWanted], "failure")
	d.Lines = append([]string{"Would replay " + printer.Grouped(counts[replay.StillWanted]) + of},
		replay.Skipped(counts)...)
	return s.answer(v, d, items, counts[replay.StillWanted], func() string {
		return "Replayed " + printer.Grouped(replay.Verdicts(items)[replay.Replayed]) + of +
			" The page Failures shows their new state."
	})
}

// atMost ends with errTooMany after n failures.
func atMost(n int, all iter.Seq2[broker.DeadLetter, error]) iter.Seq2[broker.DeadLetter, error] {
	return func(yield func(broker.DeadLetter, error) bool) {
		for f, err := range all {
			if n--; n < 0 {
				err = errTooMany
			}
			if !yield(f, err) || err != nil {
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
	r := replay.Refetch{Scope: v.scope()}
	items, err := r.Items(v.Context(), v.client)
	if err != nil {
		return nil, err
	}
	n, all := len(items), printer.Plural(len(items), "key")
	d := &dialog{
		title: "Fetch now", Button: "Fetch " + all, Back: "/wants?" + parameters(r.Scope).Encode(),
		Lines:   []string{"Would fetch " + all + " now.", "Unchanged bodies are not written."},
		Hidden:  parameters(r.Scope),
		command: append([]string{"curlctl", "refetch"}, r.Words()...),
	}
	if n > maxRequests {
		d.Lines, n = append(d.Lines, errTooMany.Error()), 0
	}
	return s.answer(v, d, items, n, func() string {
		counts := replay.Verdicts(items)
		return "Requested " + printer.Grouped(counts[replay.Replayed]+counts[replay.Already]) + " of " + all +
			". The page Wanted shows their new state."
	})
}
