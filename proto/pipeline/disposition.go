package pipeline

import (
	"errors"
	"fmt"
	"time"
)

// Disposition is what becomes of a message. The zero value gives the message
// back with a growing delay, so that a handler that forgets to decide loses
// nothing.
type Disposition struct {
	action action
	after  time.Duration
	err    error
}

// action is the verb of a disposition.
type action string

const (
	actionRetry      action = "retry"
	actionAck        action = "ack"
	actionGiveBack   action = "give_back"
	actionDeadLetter action = "dead_letter"
)

// Ack ends a message: all that it asked for is done, or kept elsewhere, such as
// in a timer.
func Ack() Disposition { return Disposition{action: actionAck} }

// Retry gives a message back to the server, which delivers it again after a
// while. Without a positive one that is a delay that grows with the deliveries:
// the server would deliver at once, again and again. The message keeps its place
// among MaxAckPending meanwhile, so that what fails for reasons of its own is
// rescheduled by a timer and acknowledged instead.
func Retry(after time.Duration) Disposition {
	return Disposition{action: actionRetry, after: after}
}

// GiveBack returns a message at once, for another process: this one ends, and
// the work was not begun or can be begun anew.
func GiveBack() Disposition { return Disposition{action: actionGiveBack} }

// DeadLetter stores a message with the reason why it cannot be handled, and ends
// it. The failure class is that of a ClassError in the chain of err, else
// Malformed. If it cannot be stored, the message is given back.
func DeadLetter(err error) Disposition { return Disposition{action: actionDeadLetter, err: err} }

// String returns the word for a disposition in logs and metric labels.
func (d Disposition) String() string {
	if d.action == "" {
		return string(actionRetry)
	}
	return string(d.action)
}

// Err returns why a message became a dead letter, or why it is tried again
// though the handler did not ask for that: nil for the others.
func (d Disposition) Err() error { return d.err }

// Dispositions returns the words of all that can become of a message.
func Dispositions() []string {
	return []string{string(actionAck), string(actionRetry), string(actionGiveBack), string(actionDeadLetter)}
}

// ErrPanic means that the handler of a message panicked.
var ErrPanic = errors.New("handler panicked")

// panicked is what remains of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

// Error returns the value of the panic, without the stack.
func (p *panicked) Error() string { return fmt.Sprintf("%v: %v", ErrPanic, p.value) }

// Unwrap returns ErrPanic.
func (p *panicked) Unwrap() error { return ErrPanic }

// PanicStack returns the stack of the panic that an error of Observe stands
// for, or nothing.
func PanicStack(err error) []byte {
	if p, ok := errors.AsType[*panicked](err); ok {
		return p.stack
	}
	return nil
}
