package engine

import (
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// outcome is the outcome of a message, from a closed set.
type outcome string

const (
	content    outcome = "content"    // a new body was handed to the writer
	recovered  outcome = "recovered"  // the key was failing and is well again with its old body
	unmodified outcome = "unmodified" // the key has this body already
	inSync     outcome = "in_sync"    // there was nothing to fetch before the next refresh
	retry      outcome = "retry"      // the attempt failed, and another one is scheduled
	gaveUp     outcome = "gave_up"    // the attempt failed, and a dead letter holds it unless the namespace is over its budget
	parked     outcome = "parked"     // no attempt could be made now
	waits      outcome = "waits"      // the key goes on waiting in the queue of its host
	superseded outcome = "superseded" // the key wants something else by now, or nothing
	tombstone  outcome = "tombstone"  // the message was a tombstone
	malformed  outcome = "malformed"  // the message could not be handled; a dead letter has it
	postponed  outcome = "postponed"  // the broker did not take what came out before the process had to end, or does not know yet what it is asked for
)

func outcomes() []outcome {
	return []outcome{
		content, recovered, unmodified, inSync, retry, gaveUp,
		parked, waits, superseded, tombstone, malformed, postponed,
	}
}

// ending is the end of the handling of a message.
type ending struct {
	outcome outcome
	failure failure
	// wait until the next try of the key, if known.
	wait time.Duration
	// dropped reports that there is no dead letter, because of the budget or because the stream
	// refused it.
	dropped bool
}

// disposition acknowledges handled messages, because a timer or a dead letter has the rest of the
// work.
func (r ending) disposition() pipeline.Disposition {
	switch {
	case r.outcome == malformed:
		return pipeline.DeadLetter(&pipeline.ClassError{Class: r.failure.Class, Err: r.failure.cause})
	case r.outcome == postponed && r.wait == 0:
		return pipeline.GiveBack()
	case r.outcome == postponed:
		return pipeline.Retry(r.wait)
	}
	return pipeline.Ack()
}
