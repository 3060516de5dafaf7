// Package jobs runs what persons have begun, in this process, and holds what became of
// it to look at.
package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// How many jobs run at a time, and how many ended ones are kept to look at.
const (
	maxRunning = 4
	maxKept    = 20
)

// Task is what a job is to do.
type Task struct {
	// ID is made by the dialog that asks for the job.
	ID string
	// Action and Filter are those of the record of it, and Command is what does the
	// same on the command line.
	Action, Filter, Command string
	// Person who has begun it, and the only namespace that they may see; empty: all.
	Person, Namespace string
	// Selected is how many messages it is for.
	Selected int
}

// Job is a task under way.
type Job struct {
	Task

	began  time.Time
	cancel context.CancelFunc

	mu    sync.Mutex
	phase string
	done  int
	notes []string
	ended time.Time
	err   error
}

// View is a job as a page shows it.
type View struct {
	Task

	// Phase is what is being done, and Done for how many that is so far.
	Phase string
	Done  int
	Notes []string
	// Began and Ended are when it did; Ended is zero while it runs.
	Began, Ended time.Time
	// Err is why it failed; empty: it did not, or was Stopped.
	Err              string
	Running, Stopped bool
}

// Set notes how far the job is.
func (j *Job) Set(phase string, done int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.phase, j.done = phase, done
}

// Note adds a sentence about what became of it.
func (j *Job) Note(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, text)
}

// Stop ends the job.
func (j *Job) Stop() { j.cancel() }

// View returns the job as it is now.
func (j *Job) View() View {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := View{
		Task: j.Task, Phase: j.phase, Done: j.done, Notes: slices.Clone(j.notes), Began: j.began, Ended: j.ended,
		Running: j.ended.IsZero(), Stopped: errors.Is(j.err, context.Canceled),
	}
	if j.err != nil && !v.Stopped {
		v.Err = j.err.Error()
	}
	return v
}

// Runner runs jobs, which end with its context.
type Runner struct {
	ctx     context.Context //nolint:containedctx // it bounds what outlives a request
	now     func() time.Time
	running sync.WaitGroup

	mu  sync.Mutex
	all []*Job
}

// New returns a runner; now is the clock.
func New(ctx context.Context, now func() time.Time) *Runner { return &Runner{ctx: ctx, now: now} }

// Start runs a job, unless one with its id was started before, and reports whether
// one with its id is there: a person has one running at a time, and the runner four.
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
	j := &Job{Task: t, began: r.now(), cancel: cancel}
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
		j.err, j.ended = err, r.now()
	})
	return true
}

// Find returns the job with an id; nil: there is none.
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

// List returns all jobs, the newest first.
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
