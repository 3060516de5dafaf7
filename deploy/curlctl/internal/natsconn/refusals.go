package natsconn

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Refusals are the latest permission violations. The zero value is ready.
type Refusals struct {
	mu      sync.Mutex
	all     map[string]refused
	waiting map[*waiting]bool
}

type refused struct {
	err *PermissionError
	at  time.Time
}

// waiting is a context that ends on a violation for a stream or subject.
type waiting struct {
	subject string
	end     context.CancelCauseFunc
}

// Add adds a violation. Pass it to Options.
func (r *Refusals) Add(e *PermissionError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 100
	if r.all == nil || len(r.all) >= most {
		r.all = map[string]refused{}
	}
	r.all[e.Operation+" "+e.Subject] = refused{e, time.Now()}
	for one := range r.waiting {
		if strings.Contains(e.Subject, one.subject) {
			one.end(e)
		}
	}
}

// CancelOnDenied returns a context that ends, with a *PermissionError as its cause, on a
// violation for a stream or subject; empty: for any. The server sends no other response.
func (r *Refusals) CancelOnDenied(ctx context.Context, subject string) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	one := &waiting{subject, end}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[*waiting]bool{}
	}
	r.waiting[one] = true
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiting, one)
		end(nil)
	}
}

// Since returns a violation since a time, or nil.
func (r *Refusals) Since(at time.Time) *PermissionError {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if !one.at.Before(at) {
			return one.err
		}
	}
	return nil
}
