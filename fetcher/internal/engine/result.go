package engine

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// outcome is how the handling of a message ended, from a closed set.
type outcome string

const (
	// content: a new body was handed to the writer.
	content outcome = "content"
	// recovered: the key was failing and is well again with its old body.
	recovered outcome = "recovered"
	// unmodified: the key has this body already.
	unmodified outcome = "unmodified"
	// inSync: there was nothing to fetch before the next refresh.
	inSync outcome = "in_sync"
	// retry: the attempt failed, and another one is scheduled.
	retry outcome = "retry"
	// gaveUp: the attempt failed, and a dead letter keeps it.
	gaveUp outcome = "gave_up"
	// parked: no attempt could be made now.
	parked outcome = "parked"
	// superseded: the key wants something else by now, or nothing.
	superseded outcome = "superseded"
	// tombstone: the message was a tombstone.
	tombstone outcome = "tombstone"
	// malformed: the message could not be handled; a dead letter has it.
	malformed outcome = "malformed"
	// postponed: the broker did not take what came out before the process had
	// to end, or does not know yet what it is asked for.
	postponed outcome = "postponed"
)

func outcomes() []outcome {
	return []outcome{
		content, recovered, unmodified, inSync, retry, gaveUp,
		parked, superseded, tombstone, malformed, postponed,
	}
}

// end is how the handling of a message ended.
type result struct {
	outcome outcome
	// failure of the attempt, if it failed.
	failure failure
	// wait until the key is looked at again, if that is known.
	wait time.Duration
}

// acknowledge ends the delivery of a message. All that was handled is
// acknowledged, since a timer or a dead letter keeps what is left to do; only
// what was not is given back. Without either the server delivers it again.
func acknowledge(m jetstream.Msg, r result) {
	if r.outcome == postponed {
		_ = m.NakWithDelay(r.wait)
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
