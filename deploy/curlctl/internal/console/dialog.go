package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/audit"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
)

// dialog asks for confirmation; its form starts the action.
type dialog struct {
	Title, Button, Path, Back string
	// Lines describe the action.
	Lines []string
	// Hidden fields repeat the selection.
	Hidden []hidden
	// Rate and For are the values of fields (nil: there is no field).
	Rate, For *string
	// Also is the address of the dialog that includes what this one skips (empty: there is none).
	Also string
	// Word must be typed to confirm (empty: none).
	Word    string
	Command string
	Error   string
	// Nothing: there is nothing to do.
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

// confirm shows the dialog, or starts its job if it was submitted for about as many messages as are
// selected now.
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

// changedShare is the tolerance of changed: a twentieth.
const changedShare = 20

// changed reports whether a count differs too much from the confirmed one.
func changed(confirmed, now int) bool {
	return max(confirmed-now, now-confirmed)*changedShare > max(confirmed, 1)
}

// confirmed returns the count of the dialog.
func (v *visit) confirmed() int {
	n, err := strconv.Atoi(v.FormValue("count"))
	if err != nil {
		return -1
	}
	return n
}
