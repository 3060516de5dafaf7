// Package jobs runs actions of persons in this process, and keeps their results.
package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Maximum numbers of running and of kept jobs.
const (
	maxRunning = 4
	maxKept    = 20
)

// Task describes a job.
type Task struct {
	// ID is made by the dialog.
	ID string
	// Action and Filter go into the audit. Command does the same on the command line.
	Action, Filter, Command string
	// Person who started it, and the only namespace they may see (empty: all).
	Person, Namespace string
	// Selected is the number of messages.
	Selected int
}

// Job is a running or ended task.
type Job struct {
	Task

	cancel context.CancelFunc

	mu   sync.Mutex
	view View
}

// View is a job as pages show it.
type View struct {
	Task

	// Phase is the present step, and Done its progress.
	Phase string
	Done  int
	Notes []string
	// Ended is zero while it runs.
	Began, Ended time.Time
	// Err is empty if it did not fail, or was Stopped.
	Err              string
	Running, Stopped bool
}

// Set sets the progress.
func (j *Job) Set(phase string, done int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.view.Phase, j.view.Done = phase, done
}

// Note adds a sentence about the result.
func (j *Job) Note(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.view.Notes = append(j.view.Notes, text)
}

// Stop stops the job.
func (j *Job) Stop() { j.cancel() }

// View returns the present state.
func (j *Job) View() View {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.view
	v.Notes = slices.Clone(v.Notes)
	return v
}

// Runner runs jobs until its context ends.
type Runner struct {
	ctx     context.Context //nolint:containedctx // jobs outlive a request
	now     func() time.Time
	running sync.WaitGroup

	mu  sync.Mutex
	all []*Job
}

// New returns a runner; now is the clock.
func New(ctx context.Context, now func() time.Time) *Runner { return &Runner{ctx: ctx, now: now} }

// Start runs a job unless its ID is known, and reports whether it runs or ran. A person may have one
// running job, and all persons maxRunning.
func (r *Runner) Start(t Task, do func(context.Context, *Job) error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine, all := 0, 0
	for _, other := range r.all {
		if other.ID == t.ID {
			return true
		}
		if other.View().Running {
			all++
			if other.Person == t.Person {
				mine++
			}
		}
	}
	if mine > 0 || all >= maxRunning {
		return false
	}
	ctx, cancel := context.WithCancel(r.ctx)
	j := &Job{Task: t, cancel: cancel, view: View{Task: t, Began: r.now(), Running: true}}
	r.all = append(r.all, j)
	if len(r.all) > maxKept {
		if i := slices.IndexFunc(r.all, func(j *Job) bool { return !j.View().Running }); i >= 0 {
			r.all = slices.Delete(r.all, i, i+1)
		}
	}
	r.running.Go(func() {
		defer cancel()
		err := do(ctx, j)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.view.Ended, j.view.Running, j.view.Stopped = r.now(), false, errors.Is(err, context.Canceled)
		if err != nil && !j.view.Stopped {
			j.view.Err = err.Error()
		}
	})
	return true
}

// Find returns the job with an ID, or nil.
func (r *Runner) Find(id string) *Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.all {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// List returns all jobs, newest first.
func (r *Runner) List() []View {
	r.mu.Lock()
	defer r.mu.Unlock()
	var views []View
	for _, j := range slices.Backward(r.all) {
		views = append(views, j.View())
	}
	return views
}

// Wait returns when no job runs.
func (r *Runner) Wait() { r.running.Wait() }
