package pipeline

import "time"

// ConsumeOptions configure how Consume reads messages from a durable consumer and handles them.
type ConsumeOptions struct {
	// Stream and Consumer to read from. They may be created later.
	Stream, Consumer string
	// Concurrency is the maximum number of messages handled at a time. Up to 16 more, with up to 16
	// MiB, wait in the client's buffer, where AckWait runs too.
	Concurrency int
	// MaxBytes limits the total payload of messages handled at a time; 0 means no limit. A larger
	// message is handled alone.
	MaxBytes int64
	// State, if set, is called at each change between reading (nil) and not reading (the reason).
	// Calls do not overlap.
	State func(err error)
	// InProgressEvery is the interval of progress reports to the server while a message is handled;
	// 0 means a third of AckWait.
	InProgressEvery time.Duration
	// MaxUnended is how many handlings of one message may begin but never end (because the process
	// crashed, or the handler panicked) before the message is poison. 0 means DefaultMaxUnended,
	// Uncounted means any number. The first delivery is counted only if it panics.
	MaxUnended uint64
	// Poison is called instead of the handler for a poison message. It must not try the same work
	// again. Nil: the message becomes a dead letter.
	Poison Handler
	// Observe, if set, is called with the disposition of each message, after the server was
	// informed. Calls may overlap.
	Observe func(*Delivery, Disposition)
}

// stateReporter reports a state if it differs from the previous one.
type stateReporter struct {
	callback func(error)
	last     string
	reported bool
}

func (r *stateReporter) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if r.callback == nil || r.reported && r.last == text {
		return
	}
	r.last, r.reported = text, true
	r.callback(err)
}
