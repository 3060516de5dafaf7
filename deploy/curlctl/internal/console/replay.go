package console

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// rateText limits the requests of a form, and maxRequests their number, so that the response comes in time.
	rateText    = "50/s"
	maxRequests = 500
	// alsoRecovered is the field to also replay keys that were fetched since.
	alsoRecovered = "also-recovered"
	// maxIDs is the maximum number of IDs in a form.
	maxIDs = 1000
)

// dialog asks for confirmation, or reports what its form did.
type dialog struct {
	Title, Button, Path, Back string
	// Lines describe the action or its result.
	Lines []string
	// Hidden fields repeat the selection.
	Hidden []hidden
	// Also is the address of the dialog that also replays recovered keys (empty: there are none).
	Also    string
	Command string
	// Nothing means that there is nothing to confirm.
	Nothing bool
}

type hidden struct{ Name, Value string }

func (d *dialog) page() *page { return &page{template: "dialog.html", title: d.Title, data: d} }

// hide adds a hidden field, unless it is empty.
func (d *dialog) hide(name, value string) {
	if value != "" {
		d.Hidden = append(d.Hidden, hidden{name, value})
	}
}

// limit leaves more than maxRequests to the command, and forbids to send the form then or without any.
func (d *dialog) limit(n int) {
	if n > maxRequests {
		d.Lines = append(d.Lines, fmt.Sprintf("The console requests at most %d at once. Use the command.", maxRequests))
	}
	d.Nothing = n == 0 || n > maxRequests
}

func requestRate() (rate keys.Rate) {
	_ = rate.Set(rateText) // it is valid
	return rate
}

// selection has the failures to replay, by filter or by ID.
type selection struct {
	filter
	ids []uint64
}

// selected parses IDs, or the filter.
func (v *visit) selected() (selection, error) {
	f, err := v.readFilter()
	s := selection{filter: f}
	if err != nil {
		return s, err
	}
	s.Dead.Below = 0
	for _, text := range v.Form["id"] {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return s, badRequest(fmt.Errorf("id: %q is not the ID of a failure", text))
		}
		if s.ids = append(s.ids, id); len(s.ids) > maxIDs {
			return s, badRequest(fmt.Errorf("id: more than %d, select by filter", maxIDs))
		}
	}
	return s, nil
}

// failures reads the selected failures, by filter one more than maxPlanned at most.
func (s selection) failures(ctx context.Context, client *operate.Client) iter.Seq2[operate.DeadLetter, error] {
	if len(s.ids) == 0 {
		return client.DeadLetters(ctx, s.Dead)
	}
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, id := range s.ids {
			f, err := failureOf(ctx, client, id)
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// words returns the arguments of curlctl.
func (s selection) words() []string {
	if len(s.ids) == 0 {
		if words := s.Words(); len(words) > 0 {
			return words
		}
		return []string{"--all"}
	}
	var words []string
	for _, id := range s.ids {
		words = append(words, strconv.FormatUint(id, 10))
	}
	return words
}

// withRecovered returns the path of the dialog that also replays recovered failures.
func (s selection) withRecovered() string {
	also := url.Values{alsoRecovered: {"1"}}
	maps.Copy(also, s.Values)
	for _, id := range s.ids {
		also.Add("id", strconv.FormatUint(id, 10))
	}
	return "/failures/replay?" + also.Encode()
}

func (s *Server) replayDialog(v *visit) (*page, error) {
	d, _, err := s.planReplay(v)
	return orNil(d, err)
}

// planReplay describes the replay of the selected failures. It compares at most 2 maxRequests failures with their
// keys. With more, there are no items, and the dialog shows the command.
func (s *Server) planReplay(v *visit) (*dialog, []*keys.Item, error) {
	sel, err := v.selected()
	if err == nil {
		err = v.mayReplay()
	}
	if err != nil {
		return nil, nil, err
	}
	if top, err := strconv.ParseUint(v.FormValue("top"), 10, 64); err == nil {
		sel.Dead.Below = top + 1
	}
	again := v.FormValue(alsoRecovered) != ""
	words := append(append([]string{"curlctl", "replay"}, sel.words()...), "--rate="+rateText)
	if again {
		words = append(words, "--"+alsoRecovered)
	}
	d := &dialog{Title: "Replay failures", Path: "/failures/replay", Back: sel.At("/failures"), Command: command(words...)}
	var found []operate.DeadLetter
	top := uint64(0)
	for f, err := range sel.failures(v.Context(), v.client) {
		if err != nil {
			return nil, nil, err
		}
		if found = append(found, f); len(found) > 2*maxRequests {
			d.Lines = []string{"Would replay more than " + printer.Plural(2*maxRequests, "failure") + "."}
			d.limit(len(found))
			return d, nil, nil
		}
		top = max(top, f.ID)
	}
	items, err := keys.PlanReplay(v.Context(), v.client, func(yield func(operate.DeadLetter, error) bool) {
		for _, f := range found {
			if !yield(f, nil) {
				return
			}
		}
	}, again)
	if err != nil {
		return nil, nil, err
	}
	counts := keys.Verdicts(items)
	n := counts[keys.Wanted]
	d.Button = "Replay " + printer.Plural(n, "failure")
	d.Lines = append([]string{
		fmt.Sprintf("Would replay %s of %s.", printer.Grouped(n), printer.Plural(len(items), "failure")),
	}, keys.Skipped(counts)...)
	d.limit(n)
	for _, field := range filterFields() {
		d.hide(field, sel.Values.Get(field))
	}
	for _, id := range sel.ids {
		d.hide("id", strconv.FormatUint(id, 10))
	}
	d.hide("top", strconv.FormatUint(top, 10))
	d.hide(alsoRecovered, v.FormValue(alsoRecovered))
	if counts[keys.Recovered] > 0 {
		d.Also = sel.withRecovered()
	}
	return d, items, nil
}

// replay replays the failures of a submitted dialog, without those that are newer than the dialog.
func (s *Server) replay(v *visit) (*page, error) {
	if v.FormValue("top") == "" {
		return nil, badRequest(errors.New("top: the form is incomplete, open the dialog again"))
	}
	d, items, err := s.planReplay(v)
	if err != nil || d.Nothing {
		return orNil(d, err)
	}
	err = keys.Replay(v.Context(), s.deps.Conn.Client, items, requestRate(), nil)
	counts := keys.Verdicts(items)
	d.Title, d.Nothing, d.Also = "Replay", true, ""
	d.Lines = append([]string{fmt.Sprintf("Replayed %s of %s. The page Failures shows their new state.",
		printer.Grouped(counts[keys.Replayed]), printer.Plural(len(items), "failure"))}, keys.Skipped(counts)...)
	return orNil(d, err)
}

func orNil(d *dialog, err error) (*page, error) {
	if err != nil {
		return nil, err
	}
	return d.page(), nil
}

func (s *Server) refetchDialog(v *visit) (*page, error) {
	d, _, err := s.planRefetch(v)
	return orNil(d, err)
}

// planRefetch describes the fetch of the selected keys.
func (s *Server) planRefetch(v *visit) (*dialog, []*keys.Item, error) {
	if err := v.mayReplay(); err != nil {
		return nil, nil, err
	}
	namespace, name, host := v.FormValue("namespace"), v.FormValue("name"), v.FormValue("host")
	var selected []*keys.Item
	for w, err := range v.client.Wants(v.Context(), namespace, name) {
		if err != nil {
			return nil, nil, err
		}
		if host == "" || pipeline.HostIs(w.Want.GetUrl(), host) {
			selected = append(selected, &keys.Item{Key: w.Key, Verdict: keys.Wanted})
		}
	}
	words := refetchWords(namespace, name, host)
	d := &dialog{
		Title: "Fetch now", Button: "Fetch " + printer.Plural(len(selected), "key"), Path: "/refetch", Back: "/wants",
		Lines: []string{
			"Would fetch " + printer.Plural(len(selected), "key") + " now.", "Unchanged bodies are not written.",
		},
		Command: command(append(append([]string{"curlctl", "refetch"}, words...), "--rate="+rateText)...),
	}
	d.limit(len(selected))
	d.hide("namespace", namespace)
	d.hide("name", name)
	d.hide("host", host)
	return d, selected, nil
}

func (s *Server) refetch(v *visit) (*page, error) {
	d, selected, err := s.planRefetch(v)
	if err != nil || d.Nothing {
		return orNil(d, err)
	}
	err = keys.Replay(v.Context(), s.deps.Conn.Client, selected, requestRate(), nil)
	counts := keys.Verdicts(selected)
	d.Nothing = true
	d.Lines = []string{fmt.Sprintf("Requested %s of %s. The page Wanted shows their new state.",
		printer.Grouped(counts[keys.Replayed]+counts[keys.Already]), printer.Plural(len(selected), "key"))}
	return orNil(d, err)
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
