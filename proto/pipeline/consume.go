package pipeline

import "time"

// ConsumeOptions configure how Consume takes messages from a durable consumer,
// and how it handles them.
type ConsumeOptions struct {
	// Stream and Consumer to read from. They need not exist yet.
	Stream, Consumer string
	// Concurrency is the number of messages handled at a time. At most 16 more,
	// and of 16 MiB together, wait in the client's buffer: AckWait runs there
	// too.
	Concurrency int
	// MaxBytes bounds the payload bytes handled at a time; 0: no bound. A
	// single message above it is handled alone.
	MaxBytes int64
	// State, if set, is called once for each change between reading (nil) and
	// not reading (why), from one goroutine at a time.
	State func(err error)
	// InProgressEvery is how often the server is notified that a message is still in
	// work; 0: a third of AckWait.
	InProgressEvery time.Duration
	// MaxUnended is how many handlings of one message may begin without an end
	// (the process crashed, or the handler panicked) before the message is
	// poison; 0: 5, Uncounted: any number. They are recorded in Requests from the
	// second delivery on.
	MaxUnended uint64
	// Poison is called in place of the handler for a message that is poison. It
	// must not try the same work again. Nil: the message becomes a dead letter.
	Poison Handler
	// Observe, if set, is called with what became of each message, after the
	// server was asked for that. It may be called from many goroutines.
	Observe func(*Delivery, Disposition)
	// Now is the clock of dead letters; nil: time.Now.
	Now func() time.Time

	// heartbeat is how often the server shows that it is there; 0: 5 s.
	heartbeat time.Duration
}

// changes passes a state on when it differs from the one before.
type changes struct {
	report   func(error)
	last     string
	reported bool
}

func (c *changes) set(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if c.report == nil || c.reported && c.last == text {
		return
	}
	c.last, c.reported = text, true
	c.report(err)
}
