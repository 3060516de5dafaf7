package engine

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// outcome is how the handling of a message ended, from a closed set.
type outcome string

const (
	// stored: a new body was handed to the writer.
	stored outcome = "content"
	// recovered: the key was failing and is well again with its old body.
	recovered outcome = "recovered"
	// unmodified: the key has this body already.
	unmodified outcome = "unmodified"
	// alreadySettled: there was nothing to fetch before the next refresh.
	alreadySettled outcome = "settled"
	// retried: the attempt failed, and another one is scheduled.
	retried outcome = "retry"
	// gaveUp: the attempt failed, and a dead letter tells of it.
	gaveUp outcome = "gave_up"
	// parked: no attempt could be made now.
	parked outcome = "parked"
	// superseded: the key wants something else by now, or nothing.
	superseded outcome = "superseded"
	// forgotten: the message was a tombstone.
	forgotten outcome = "tombstone"
	// buried: the message could not be handled; a dead letter has it.
	buried outcome = "malformed"
	// postponed: the broker did not take what came out before the process had
	// to end, or does not know yet what it is asked for.
	postponed outcome = "postponed"
)

func outcomes() []outcome {
	return []outcome{
		stored, recovered, unmodified, alreadySettled, retried, gaveUp,
		parked, superseded, forgotten, buried, postponed,
	}
}

// end is how the handling of a message ended.
type end struct {
	outcome outcome
	// failure of the attempt, if it failed.
	failure failure
	// wait until the key is looked at again, if that is known.
	wait time.Duration
}

// settle tells the server what becomes of a message. All that was handled is
// acknowledged, since a timer or a dead letter keeps what is left to do; only
// what was not goes back. If the server does not hear of it, it delivers the
// message again.
func settle(m jetstream.Msg, e end) {
	if e.outcome == postponed {
		_ = m.NakWithDelay(e.wait)
		return
	}
	_ = m.Ack()
}

// lease keeps a message from being delivered to others while it is in work.
type lease struct {
	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// hold begins with a beat if the message is old: it may have waited in the
// client's buffer for long.
func hold(m jetstream.Msg, every time.Duration) *lease {
	if meta, err := m.Metadata(); err == nil && time.Since(meta.Timestamp) > every {
		_ = m.InProgress()
	}
	l := new(lease)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(every, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			_ = m.InProgress()
			l.timer.Reset(every)
		}
	})
	return l
}

// end stops the lease. No beat comes after it, which would take back the
// delay that a message was given back with.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.timer.Stop()
}
