package engine

import (
	"errors"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// attemptEnd is one of the ends that the functions below return.
type attemptEnd struct {
	response *get.Response
	failure  *fetchFailure
	parking  *parking
	// outcome is set if nothing was attempted.
	outcome outcome
	wait    time.Duration
}

// responded is the end with a good response, whose body has passed the rules.
func responded(r get.Response) attemptEnd { return attemptEnd{response: &r} }

func failed(f *fetchFailure) attemptEnd { return attemptEnd{failure: f} }

// parkedFor is the end of an attempt that waits for the end of a pause or a used-up budget.
func parkedFor(w throttle.Wait) attemptEnd { return attemptEnd{parking: &parking{Wait: w}} }

// queuedFor is the end of an attempt that waits in the queue. An empty wait is for its turn only.
func queuedFor(w throttle.Wait) attemptEnd {
	return attemptEnd{parking: &parking{Wait: w, queued: true}}
}

// queuedBehind is the end of an attempt that has to wait for another one's GET of r.
func queuedBehind(r get.Request) attemptEnd {
	end := queuedFor(throttle.Wait{For: v1.WaitsFor_WAITS_FOR_SHARED_GET})
	end.parking.shared = r
	return end
}

// skipped is the end of a message that needs no attempt.
func skipped(o outcome) attemptEnd { return attemptEnd{outcome: o} }

// postponedFor is the end of a message that is delivered again after a wait, or (0) as soon as a fetcher takes it.
func postponedFor(wait time.Duration) attemptEnd {
	return attemptEnd{outcome: outcomePostponed, wait: wait}
}

// undecodable is the end of a message that becomes a dead letter.
func undecodable(why error) attemptEnd {
	return attemptEnd{outcome: outcomeMalformed, failure: unhandled("message cannot be decoded", why)}
}

// parking describes how a key waits without an attempt. A parked key has a timer with v1.Cause_CAUSE_PARKED. A queued
// key is parked and also waits in memory, for a slot or for the end of the GET of shared. Its timer is a lease, after
// which the broker delivers it again, perhaps to another fetcher.
type parking struct {
	// For is unspecified if the key only waits for its turn in the queue.
	throttle.Wait

	queued bool
	shared get.Request
}

// fetchFailure is the failure of a key.
type fetchFailure struct {
	get.Error
	// text is a sentence for the log.
	text string
	// rule is the number of the rule that the body does not meet, from 1.
	rule uint32
	// cause is the reason why the message cannot be handled, if there is one.
	cause error
}

// failureOf returns the failure of a GET.
func failureOf(err error) *fetchFailure {
	if err, ok := errors.AsType[*get.Error](err); ok {
		return &fetchFailure{Error: *err, text: err.Error()}
	}
	// Only its own deadline ends the context of a GET.
	return &fetchFailure{Error: get.Error{Class: failure.Timeout}, text: "GET was stopped before it was done"}
}

func tooLarge() *fetchFailure {
	return failureOf(&get.Error{Class: failure.BodyTooLarge, Detail: failure.MessageLimit})
}

func mismatched(sha256 string) *fetchFailure {
	return failureOf(&get.Error{Class: failure.DigestMismatch, SHA256: sha256})
}

// poisoned is the failure of a key whose messages were started too often but never finished.
func poisoned() *fetchFailure {
	return &fetchFailure{
		Error: get.Error{Class: failure.Poison},
		text:  "message was delivered again and again without being finished",
	}
}

// unhandled is the failure of a message that cannot be decoded, or whose outcome the broker rejects.
func unhandled(text string, why error) *fetchFailure {
	return &fetchFailure{Error: get.Error{Class: failure.Malformed}, text: text, cause: why}
}
