package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/jobs"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Bounds of a plan: with more failures than planShort, or after planPatience, its
// dialog does not wait for it any longer; after planTimeout it ends. One that no
// dialog has asked for within planStored is forgotten.
const (
	planShort    = 5000
	planPatience = 10 * time.Second
	planTimeout  = 2 * time.Minute
	planStored   = 30 * time.Second
	plansEach    = 2
	plansMost    = 8
)

// plan is a dry run under way: it reads what is wanted for each failure.
type plan struct {
	person    string
	selection string
	cancel    context.CancelFunc
	// long is closed when there are more failures than planShort, and done at the end.
	long, done chan struct{}
	unread     readable.Unread

	// read and checked are how many failures have been.
	read, checked atomic.Int64

	// The outcome, once done is closed.
	items []*replay.Item
	err   error

	// asked is when a dialog last did; it is of plans.
	asked time.Time
}

// run makes the plan of a selection.
func (p *plan) run(ctx context.Context, client *operate.Client, sel selection) {
	defer close(p.done)
	defer p.cancel()
	p.items, p.err = replay.Plan(ctx, client, func(yield func(operate.DeadLetter, error) bool) {
		for f, err := range sel.failures(ctx, client, &p.unread) {
			if p.read.Add(1) == planShort+1 {
				close(p.long)
			}
			if !yield(f, err) {
				return
			}
		}
	}, func(n int) { p.checked.Store(int64(n)) })
}

// ended waits for the plan, and reports whether it is made; it is not when it is long,
// or ctx has ended.
func (p *plan) ended(ctx context.Context) bool {
	patience := time.NewTimer(planPatience)
	defer patience.Stop()
	select {
	case <-p.done:
		return true
	case <-p.long:
	case <-patience.C:
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for the plan on behalf of a job, whose end is that of the plan.
func (p *plan) wait(ctx context.Context, j *jobs.Job) error {
	defer p.cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			return p.err
		case <-tick.C:
			j.Set("checked", int(p.checked.Load()))
		}
	}
}

// plans are those under way, at most plansEach of one person: who opens more
// dialogs has left the first.
type plans struct {
	ctx context.Context //nolint:containedctx // it bounds what outlives a request
	now func() time.Time

	mu  sync.Mutex
	all []*plan
}

// of returns the plan of a person for a selection, which is begun unless it is
// under way. The error is that of too many plans.
func (s *plans) of(person string, client *operate.Client, sel selection) (*plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, mine := s.now(), 0
	s.drop(func(p *plan) bool { return now.Sub(p.asked) > planStored })
	name := sel.String()
	for _, p := range s.all {
		if p.person == person && p.selection == name {
			p.asked = now
			return p, nil
		}
	}
	for _, p := range slices.Backward(slices.Clone(s.all)) {
		if p.person == person {
			if mine++; mine >= plansEach {
				s.drop(func(other *plan) bool { return other == p })
			}
		}
	}
	if len(s.all) >= plansMost {
		return nil, tooMany("Several people are about to replay a lot.")
	}
	ctx, cancel := context.WithTimeout(s.ctx, planTimeout)
	p := &plan{person: person, selection: name, cancel: cancel, long: make(chan struct{}), done: make(chan struct{}), asked: now}
	s.all = append(s.all, p)
	go p.run(ctx, client, sel)
	return p, nil
}

// drop ends and forgets plans.
func (s *plans) drop(which func(*plan) bool) {
	s.all = slices.DeleteFunc(s.all, func(p *plan) bool {
		if !which(p) {
			return false
		}
		p.cancel()
		return true
	})
}

// take hands a plan over to who asked for it: the next look makes another.
func (s *plans) take(p *plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *plan) bool { return other == p })
}

// String names a selection.
func (s selection) String() string {
	return fmt.Sprint(s.Values.Encode(), s.ids, s.Dead.Below)
}

// planning is the page of a plan that is not made yet.
type planning struct {
	Title, Back   string
	Read, Checked int64
}

func (p *plan) page(title, back string) *page {
	return &page{template: "planning.html", title: title, status: http.StatusOK, refresh: true, data: planning{title, back, p.read.Load(), p.checked.Load()}}
}
