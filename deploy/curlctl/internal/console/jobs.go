package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// How many jobs run at a time, and how many ended ones are kept to look at.
const (
	jobsRunning = 4
	jobsKept    = 20
)

// job is an action under way.
type job struct {
	id, action, person, filter, command, namespace string
	selected                                       int
	began                                          time.Time
	cancel                                         context.CancelFunc

	mu    sync.Mutex
	phase string
	done  int
	notes []string
	ended time.Time
	err   error
}

// jobView is a job as a page shows it.
type jobView struct {
	ID, Action, Person, Filter, Command, Phase, Namespace string
	Selected, Done                                        int
	Notes                                                 []string
	Began, Ended                                          time.Time
	Err                                                   string
	Running, Stopped                                      bool
}

func (j *job) set(phase string, done int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.phase, j.done = phase, done
}

func (j *job) note(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, text)
}

func (j *job) view() jobView {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := jobView{
		ID: j.id, Action: j.action, Person: j.person, Filter: j.filter, Command: j.command, Phase: j.phase, Namespace: j.namespace,
		Selected: j.selected, Done: j.done, Notes: slices.Clone(j.notes), Began: j.began, Ended: j.ended, Running: j.ended.IsZero(),
	}
	v.Stopped = errors.Is(j.err, context.Canceled)
	if j.err != nil && !v.Stopped {
		v.Err = j.err.Error()
	}
	return v
}

// jobs run in this process, and end with it.
type jobs struct {
	ctx     context.Context //nolint:containedctx // it bounds what outlives a request
	running sync.WaitGroup

	mu  sync.Mutex
	all []*job
}

func newJobs(ctx context.Context) *jobs { return &jobs{ctx: ctx} }

// start runs a job, unless one with its id was started before, and reports whether
// one with its id is there: a person has one running at a time, and the server four.
func (s *jobs) start(j *job, now func() time.Time, do func(context.Context, *job) error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine, all := 0, 0
	for _, other := range s.all {
		if other.id == j.id {
			return true
		}
		if other.view().Running {
			all++
			if other.person == j.person {
				mine++
			}
		}
	}
	if mine > 0 || all >= jobsRunning {
		return false
	}
	s.all = append(s.all, j)
	if len(s.all) > jobsKept {
		if i := slices.IndexFunc(s.all, func(j *job) bool { return !j.view().Running }); i >= 0 {
			s.all = slices.Delete(s.all, i, i+1)
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	j.cancel, j.began = cancel, now()
	s.running.Go(func() {
		defer cancel()
		err := do(ctx, j)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.err, j.ended = err, now()
	})
	return true
}

// find returns the job with an id; nil: there is none.
func (s *jobs) find(id string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.all {
		if j.id == id {
			return j
		}
	}
	return nil
}

// list returns all jobs, the newest first.
func (s *jobs) list() []jobView {
	s.mu.Lock()
	defer s.mu.Unlock()
	var views []jobView
	for _, j := range slices.Backward(s.all) {
		views = append(views, j.view())
	}
	return views
}

func (s *jobs) wait() { s.running.Wait() }
