package pipeline

import (
	"errors"
	"time"
)

// Disposition tells what happens to a message. The zero value retries it with a growing delay, so
// that a handler that forgets to decide loses nothing.
type Disposition struct {
	action action
	after  time.Duration
	err    error
	stack  []byte
}

// action is the kind of a disposition.
type action string

const (
	actionRetry      action = "retry"
	actionAck        action = "ack"
	actionGiveBack   action = "give_back"
	actionDeadLetter action = "dead_letter"
)

// Ack ends a message: its work is done, or recorded elsewhere, such as in a timer.
func Ack() Disposition { return Disposition{action: actionAck} }

// Retry asks the server to deliver the message again after a delay. Without a positive delay, the
// delay grows with each delivery, because the server would deliver in a tight loop. Meanwhile the
// message counts against MaxAckPending. A failure of the message's own work should therefore be
// rescheduled by a timer and acknowledged.
func Retry(after time.Duration) Disposition {
	return Disposition{action: actionRetry, after: after}
}

// GiveBack returns a message at once, for another process: this one is ending, and the work has not
// begun or can be repeated.
func GiveBack() Disposition { return Disposition{action: actionGiveBack} }

// DeadLetter stores a message with the reason why it cannot be handled, and ends it. The failure
// class comes from a ClassError in the chain of err, or is Malformed. If the dead letter cannot be
// stored, the message is retried.
func DeadLetter(err error) Disposition { return Disposition{action: actionDeadLetter, err: err} }

// String returns the name of a disposition in logs and metric labels.
func (d Disposition) String() string {
	if d.action == "" {
		return string(actionRetry)
	}
	return string(d.action)
}

// IsDeadLetter reports whether a message becomes a dead letter.
func (d Disposition) IsDeadLetter() bool { return d.action == actionDeadLetter }

// Err returns the reason of a dead letter, or of a retry that the handler did not ask for;
// otherwise nil.
func (d Disposition) Err() error { return d.err }

// PanicStack returns the stack of the handler's panic, or nil.
func (d Disposition) PanicStack() []byte { return d.stack }

// Dispositions returns the names of all dispositions.
func Dispositions() []string {
	return []string{string(actionAck), string(actionRetry), string(actionGiveBack), string(actionDeadLetter)}
}

// ErrPanic means that the handler of a message panicked.
var ErrPanic = errors.New("handler panicked")
