package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// dialog asks for confirmation. Its form starts the action.
type dialog struct {
	Title, Button, Path, Back string
	// Lines describe the action.
	Lines []string
	// Hidden fields repeat the selection.
	Hidden []hidden
	// Rate and For are the values of fields (nil: no field).
	Rate, For *string
	// Also is the address of the dialog that also replays recovered keys (empty: there are none).
	Also string
	// Word must be typed to confirm (empty: none).
	Word    string
	Command string
	Error   string
	// Nothing means that there is nothing to do.
	Nothing, Danger bool
}

type hidden struct{ Name, Value string }

func (d *dialog) page(status int) *page {
	return &page{template: "dialog.html", title: d.Title, data: d, status: status}
}

// refuse shows the dialog again, with an error.
func (d *dialog) refuse(status int, why string) *page {
	d.Error = why
	return d.page(status)
}

// hide adds a hidden field, unless it is empty.
func (d *dialog) hide(name, value string) {
	if value != "" {
		d.Hidden = append(d.Hidden, hidden{name, value})
	}
}

// confirm shows the dialog. If it was submitted, and about as many messages are selected as before, confirm starts
// its job.
func (s *Server) confirm(
	v *visit, d *dialog, submitted bool, record audit.Action, do func(context.Context, *jobs.Job) error,
) (*page, error) {
	switch {
	case !submitted || d.Nothing:
		return d.page(0), nil
	case changed(v.confirmed(), record.Selected):
		return d.refuse(http.StatusConflict, "The number has changed meanwhile. Check it again."), nil
	}
	task := jobs.Task{
		ID: v.FormValue("job"), Action: record.Name, Filter: record.Filter, Command: d.Command,
		Person: v.person.Name, Namespace: v.namespace, Selected: record.Selected,
	}
	if len(task.ID) < 16 || len(task.ID) > 64 {
		return nil, badRequest(errors.New("job: the form is incomplete, open the dialog again"))
	}
	if !s.jobs.Start(task, do) {
		return d.refuse(http.StatusConflict, "Another job is running. Stop it or wait for it. The page Audit lists it."), nil
	}
	return &page{redirect: v.withNamespace("/jobs/" + task.ID)}, nil
}

// record returns the audit record of an action.
func (v *visit) record(action string, filter []string, selected int) audit.Action {
	return audit.Action{
		Name: action, Filter: audit.Filter(filter), Selected: selected, OnBehalfOf: v.person.OnBehalfOf, Via: audit.Console,
	}
}

// changed reports whether a count differs from the confirmed one by more than a twentieth.
func changed(confirmed, now int) bool {
	return max(confirmed-now, now-confirmed)*20 > max(confirmed, 1)
}

// confirmed returns the count that the dialog has shown.
func (v *visit) confirmed() int {
	n, err := strconv.Atoi(v.FormValue("count"))
	if err != nil {
		return -1
	}
	return n
}

// maxIDs is the maximum number of IDs in a form.
const maxIDs = 1000

// selection has the failures to replay or purge, by filter or by ID.
type selection struct {
	filter
	ids []uint64
	// top is the ID of the newest selected failure, and count the number of all.
	top   uint64
	count int
}

// selected parses IDs, or the filter. A submitted form excludes failures that are newer than its dialog.
func (v *visit) selected(submitted bool) (selection, error) {
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
	if submitted {
		top, err := strconv.ParseUint(v.FormValue("top"), 10, 64)
		if err != nil {
			return s, badRequest(errors.New("top: the form is incomplete, open the dialog again"))
		}
		s.Dead.Below = top + 1
	}
	return s, nil
}

// failures reads the selected failures. It fails for an ID of another namespace.
func (s selection) failures(ctx context.Context, client *operate.Client) iter.Seq2[operate.DeadLetter, error] {
	if len(s.ids) == 0 {
		return client.DeadLetters(ctx, s.Dead)
	}
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, id := range s.ids {
			f, err := failureIn(ctx, client, id, s.Namespace)
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// address returns the address of a dialog for the same selection, with additional fields.
func (s selection) address(path string, more url.Values) string {
	maps.Copy(more, s.Values)
	for _, id := range s.ids {
		more.Add("id", strconv.FormatUint(id, 10))
	}
	return path + "?" + more.Encode()
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

// repeat adds the selection to the form.
func (s selection) repeat(d *dialog, count int) {
	for _, field := range filterFields() {
		d.hide(field, s.Values.Get(field))
	}
	for _, id := range s.ids {
		d.hide("id", strconv.FormatUint(id, 10))
	}
	d.hide("top", strconv.FormatUint(s.top, 10))
	d.hide("count", strconv.Itoa(count))
	d.hide("job", rand.Text())
	d.Back = s.At("/failures")
}
