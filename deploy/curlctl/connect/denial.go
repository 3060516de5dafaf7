package connect

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Denials notes the permission violations on a connection. The zero value is ready.
type Denials struct {
	mu      sync.Mutex
	last    *PermissionError
	waiting map[context.Context]context.CancelCauseFunc
}

func (d *Denials) add(e *PermissionError) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = e
	for _, end := range d.waiting {
		end(e)
	}
}

// CancelOnDenied returns a context that ends at the next violation, with a *PermissionError as its cause. Without
// it, the denied request would wait until its timeout.
func (d *Denials) CancelOnDenied(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[context.Context]context.CancelCauseFunc{}
	}
	d.waiting[ctx] = end
	return ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, ctx)
		end(nil)
	}
}

// Since returns the last violation, or nil if it was before a time.
func (d *Denials) Since(at time.Time) *PermissionError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || d.last.at.Before(at) {
		return nil
	}
	return d.last
}

// PermissionError means that the server denied an operation.
type PermissionError struct {
	// Operation is "publish to" or "subscribe to", if the server names it.
	Operation string
	// Subject of the operation.
	Subject string

	at time.Time
}

// Error implements error.
func (p *PermissionError) Error() string {
	return "this NATS user may not " + p.Operation + " " + p.Subject +
		": use another identity (--context or --nats-creds), or ask for that permission"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// denial parses a permission violation. It returns nil for other errors, and for the optional request of User.
func denial(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	denied := &PermissionError{
		Operation: "do this:", Subject: "the server did not name the subject", at: time.Now(),
	}
	if match := violation.FindStringSubmatch(err.Error()); match != nil {
		denied.Operation, denied.Subject = "publish to", match[2]
		if strings.EqualFold(match[1], "subscription") {
			denied.Operation = "subscribe to"
		}
	}
	if denied.Subject == userInfo {
		return nil
	}
	return denied
}
