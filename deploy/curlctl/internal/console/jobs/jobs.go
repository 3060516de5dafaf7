// Package jobs runs actions of the console's users in this process, and keeps their results.
package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Maximum numbers of running jobs, and of jobs to keep.
const (
	maxRunning = 4
	maxKept    = 20
)

// Task describes a job.
type Task struct {
	// ID comes from the dialog.
	ID string
	// Action and Filter are as in the audit. Command is the equivalent on the command line.
	Action, Filter, Command string
	// Person started the job. Namespace is the only one that the person may see (empty: all).
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

	// Phase is the current step, and Done its progress.
	Phase string
	Done  int
	Notes []string
	// Ended is zero while the job runs.
	Began, Ended time.Time
	// Err is empty if the job has not failed, or was Stopped.
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

// View returns the current state.
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

// Start runs a job unless a job with this ID exists. It returns false if the person has a running job, or if
// maxRunning jobs run.
func (r *Runner) Start(t Task, do func(context.Context, *Job) error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	own, all := 0, 0
	for _, other := range r.all {
		if other.ID == t.ID {
			return true
		}
		if other.View().Running {
			all++
			if other.Person == t.Person {
				own++
			}
		}
	}
	if own > 0 || all >= maxRunning {
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
