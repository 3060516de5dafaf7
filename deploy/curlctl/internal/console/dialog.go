package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
)

// dialog asks before an action; its form is the action.
type dialog struct {
	Title, Button, Path, Back string
	// Lines are what would be done.
	Lines []string
	// Hidden are the fields that repeat the plan.
	Hidden []hidden
	// Rate, Over and For are the values of their fields; absent where nil.
	Rate, Over, For *string
	// Word is what to type; empty: nothing.
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

// refuse shows the dialog again, and why.
func (d *dialog) refuse(status int, why string) *page {
	d.Error = why
	return d.page(status)
}

func (d *dialog) hide(name, value string) { d.Hidden = append(d.Hidden, hidden{name, value}) }

// confirm shows the dialog, or, once it was submitted for about as much as is selected
// now, starts its job.
func (s *Server) confirm(v *visit, d *dialog, submitted bool, record operator.Action, do func(context.Context, *jobs.Job) error) (*page, error) {
	switch {
	case !submitted || d.Nothing:
		return d.page(0), nil
	case changed(v.confirmed(), record.Selected):
		return d.refuse(http.StatusConflict, "Meanwhile the number has changed; look again."), nil
	}
	return s.begin(v, d, record, do)
}

// begin starts the job of a dialog.
func (s *Server) begin(v *visit, d *dialog, record operator.Action, do func(context.Context, *jobs.Job) error) (*page, error) {
	task := jobs.Task{
		ID: v.FormValue("job"), Action: record.Name, Filter: record.Filter, Command: d.Command, Person: v.person.Name, Namespace: v.namespace,
		Selected: record.Selected,
	}
	if len(task.ID) < 16 || len(task.ID) > 64 {
		return nil, badRequest(errors.New("job: this form is incomplete; open the dialog again"))
	}
	if !s.jobs.Start(task, do) {
		return d.refuse(http.StatusConflict, "A job is running already. Stop it, or wait until it has ended: the page Audit lists it."), nil
	}
	return &page{redirect: v.withNamespace("/jobs/" + task.ID)}, nil
}

// record is the audit of an action of the person.
func (v *visit) record(action string, filter []string, selected int) operator.Action {
	return operator.Action{Name: action, Filter: operator.Filter(filter), Selected: selected, OnBehalfOf: v.person.OnBehalfOf, Via: operator.Console}
}

// changedShare is by which part a count may differ from the one that was confirmed.
const changedShare = 20

// changed reports whether a count differs too much from the one that was
// confirmed.
func changed(confirmed, now int) bool {
	return max(confirmed-now, now-confirmed)*changedShare > max(confirmed, 1)
}

// confirmed reads the count of the dialog.
func (v *visit) confirmed() int {
	n, err := strconv.Atoi(v.FormValue("count"))
	if err != nil {
		return -1
	}
	return n
}
