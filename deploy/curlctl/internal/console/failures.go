package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// pageRows is the maximum number of rows.
const pageRows = 50

// filterFields returns the query parameters of a filter, named like the flags of curlctl.
func filterFields() []string {
	return []string{"reason", "host", "namespace", "name", "key", "since", "until"}
}

// filter selects failures by query parameters.
type filter struct {
	keys.Selection

	// Values has the set parameters, without the cursor.
	Values url.Values
	// Dead is the parsed filter.
	Dead operate.DeadLetterFilter
}

// readFilter parses the query or form.
func (v *visit) readFilter() (filter, error) {
	f := filter{Values: url.Values{}}
	for _, field := range filterFields() {
		if value := strings.TrimSpace(v.FormValue(field)); value != "" {
			f.Values.Set(field, value)
		}
	}
	get := f.Values.Get
	f.Selection = keys.Selection{
		Reason: get("reason"), Host: get("host"), Namespace: get("namespace"), Name: get("name"), Key: get("key"),
		Since: get("since"), Until: get("until"),
	}
	var err error
	if f.Dead, err = f.Filter(v.server.deps.Now()); err != nil {
		return f, badRequest(err)
	}
	if below := v.FormValue("below"); below != "" {
		if f.Dead.Below, err = strconv.ParseUint(below, 10, 64); err != nil || f.Dead.Below == 0 {
			return f, badRequest(fmt.Errorf("below: %q is not the ID of a failure", below))
		}
	}
	return f, nil
}

// Below returns the address of the page below an ID.
func (f filter) Below(id string) string {
	values := maps.Clone(f.Values)
	values.Set("below", id)
	return "/failures?" + values.Encode()
}

// At returns the address of another page for the same filter.
func (f filter) At(path string) string { return path + "?" + f.Values.Encode() }

// Words returns the flags of curlctl.
func (f filter) Words() []string {
	var words []string
	for _, field := range filterFields() {
		if value := f.Values.Get(field); value != "" {
			words = append(words, "--"+field+"="+value)
		}
	}
	return words
}

// match reports whether a new failure matches. It compares only fields of the subject.
func (f filter) match(x operate.DeadLetter) bool {
	s := f.Selection
	return (s.Reason == "" || s.Reason == x.Reason) && (s.Host == "" || strings.EqualFold(s.Host, x.Host)) &&
		(s.Namespace == "" || s.Namespace == x.Key.Namespace) && (s.Name == "" || s.Name == x.Key.Name) &&
		(s.Key == "" || s.Key == x.Key.Key) && s.Until == ""
}

type failuresData struct {
	Filter  filter
	Rows    []keys.Record
	Older   string
	Below   uint64
	Reasons []string
	// Match is the number of matches, if it is Counted.
	Match   uint64
	Counted bool
	Command string
	Replay  bool
}

func (s *Server) failuresPage(v *visit) (*page, error) {
	f, err := v.readFilter()
	if err != nil {
		return nil, err
	}
	last := s.lookShortly(v)
	if errors.As(last.Err, new(*operate.PermissionError)) {
		return nil, last.Err // the server would not respond to the requests below either
	}
	data := failuresData{
		Filter: f, Below: f.Dead.Below, Reasons: keys.Reasons(),
		Command: command(append([]string{"curlctl", "failures"}, f.Words()...)...),
		Replay:  s.deps.Access.mayReplay,
	}
	newest := uint64(0)
	for d, err := range v.client.DeadLetters(v.Context(), f.Dead) {
		if err != nil {
			return nil, err
		}
		if len(data.Rows) == pageRows {
			data.Older = strconv.FormatUint(data.Rows[pageRows-1].ID, 10)
			break
		}
		newest = max(newest, d.ID)
		data.Rows = append(data.Rows, failureRow(&last, d))
	}
	data.Match, data.Counted = f.count(&last)
	live := maps.Clone(f.Values)
	live.Set("failed", strconv.FormatUint(newest, 10))
	return &page{template: "failures.html", title: "Failures", data: data, live: live}, nil
}

// shortTimeout is how long a page that does not need the model waits for it.
const shortTimeout = time.Second

func (s *Server) lookShortly(v *visit) reading {
	ctx, cancel := context.WithTimeout(v.Context(), shortTimeout)
	defer cancel()
	return s.model.Look(ctx, s.ended)
}

// count counts the matches if the filter has no fields other than reason and host.
func (f filter) count(last *reading) (n uint64, counted bool) {
	sel := f.Selection
	byReasonHost := keys.Selection{Reason: sel.Reason, Host: sel.Host}
	if sel != byReasonHost || pipeline.IsAddress(sel.Host) || last.AsOf.IsZero() {
		return 0, false
	}
	for group, count := range last.Streams.Failures {
		if (sel.Reason == "" || sel.Reason == group.Reason) &&
			(sel.Host == "" || strings.EqualFold(sel.Host, group.Host)) {
			n += count
		}
	}
	return n, true
}

// failureRow returns a failure with the current state of its key.
func failureRow(last *reading, d operate.DeadLetter) keys.Record {
	row := keys.NewRecord(d)
	if !last.AsOf.IsZero() {
		row.Now = keys.Now(keys.RequestOf(d.Message.GetWant()), last.Key(d.Key))
	}
	return row
}

// failure reads the failure with an ID.
func (v *visit) failure(text string) (operate.DeadLetter, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return operate.DeadLetter{}, notFound("%q is not the ID of a failure.", text)
	}
	return failureOf(v.Context(), v.client, id)
}

func failureOf(ctx context.Context, client *operate.Client, id uint64) (operate.DeadLetter, error) {
	d, err := client.DeadLetter(ctx, id)
	if errors.Is(err, pipeline.ErrNoMessage) || errors.Is(err, pipeline.ErrSubject) {
		return operate.DeadLetter{}, notFound("Failure %d does not exist. It may have been removed.", id)
	}
	return d, err
}

type failureData struct {
	keys.Record

	Snippet  string
	TraceURL string
	Command  string
	Replay   bool
}

// maxSnippet is the maximum length of a displayed response, in bytes.
const maxSnippet = 1 << 10

func (s *Server) failurePage(v *visit) (*page, error) {
	d, err := v.failure(v.PathValue("id"))
	if err != nil {
		return nil, err
	}
	last := s.lookShortly(v)
	data := failureData{
		Record:  failureRow(&last, d),
		Command: command("curlctl", "failures", "show", strconv.FormatUint(d.ID, 10)), Replay: s.deps.Access.mayReplay,
	}
	snippet := d.Message.GetSnippet()
	data.Snippet = strings.ToValidUTF8(string(snippet[:min(len(snippet), maxSnippet)]), "\uFFFD")
	if data.TraceID != "" && s.deps.TraceURL != "" {
		data.TraceURL = strings.ReplaceAll(s.deps.TraceURL, "{trace}", data.TraceID)
	}
	return &page{template: "failure.html", title: "Failure " + strconv.FormatUint(d.ID, 10), data: data}, nil
}

// command quotes a command line for a shell.
func command(words ...string) string {
	for i, word := range words {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("-_=./:,@%+", r) && (r > unicode.MaxASCII || !unicode.IsLetter(r) &&
				!unicode.IsDigit(r))
		}) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
