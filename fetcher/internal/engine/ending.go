package engine

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// outcome is the outcome of a message, from a closed set.
type outcome string

const (
	content    outcome = "content"    // a new body was published
	recovered  outcome = "recovered"  // the key was failing and recovered with its old body
	unmodified outcome = "unmodified" // the key already has this body
	inSync     outcome = "in_sync"    // nothing to fetch before the next refresh
	retry      outcome = "retry"      // the attempt failed, and a retry is scheduled
	gaveUp     outcome = "gave_up"    // the last attempt failed, with a dead letter within the budget
	parked     outcome = "parked"     // no attempt is possible now
	waits      outcome = "waits"      // the key still waits in the queue of its host
	superseded outcome = "superseded" // the want was replaced or removed
	tombstone  outcome = "tombstone"  // the message is a tombstone
	malformed  outcome = "malformed"  // the message cannot be handled and becomes a dead letter
	postponed  outcome = "postponed"  // the broker did not accept the outcome during a drain, or a replica lags
)

// logLines has the level and the message of the log line about each outcome, see describe.
var logLines = map[outcome]struct {
	level zerolog.Level
	text  string
}{
	content:    {zerolog.InfoLevel, "fetched"},
	recovered:  {zerolog.InfoLevel, "recovered"},
	unmodified: {zerolog.DebugLevel, "unchanged"},
	inSync:     {zerolog.DebugLevel, "unchanged"},
	retry:      {zerolog.DebugLevel, "fetch failed, retrying in "},
	gaveUp:     {zerolog.WarnLevel, "gave up"},
	parked:     {zerolog.DebugLevel, "waiting for a slot"},
	waits:      {zerolog.DebugLevel, "waiting for a slot"},
	superseded: {zerolog.DebugLevel, "no longer wanted"},
	tombstone:  {zerolog.DebugLevel, "no longer wanted"},
	malformed:  {zerolog.WarnLevel, "message cannot be handled"},
	postponed:  {zerolog.DebugLevel, "outcome not accepted by NATS, retrying"},
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
