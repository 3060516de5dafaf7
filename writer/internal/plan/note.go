package plan

import (
	"time"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// reasonRecovered is the one reason that is no failure.
const reasonRecovered = pipeline.ReasonRecovered

// Classes of failures that the writer itself meets.
const (
	keyExists    = v1.FailureClass_FAILURE_CLASS_KEY_EXISTS
	immutable    = v1.FailureClass_FAILURE_CLASS_IMMUTABLE
	bodyTooLarge = v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE
	writeFailed  = v1.FailureClass_FAILURE_CLASS_WRITE_FAILED
)

// Reasons returns the reasons of all Events of the writer.
func Reasons() []string {
	reasons := []string{reasonRecovered}
	for n := range len(v1.FailureClass_name) {
		if c := v1.FailureClass(n); c != v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION {
			reasons = append(reasons, pipeline.Reason(c))
		}
	}
	return reasons
}

// fetchFailing reports whether entry fails for what a fetcher met.
func fetchFailing(entry status.Entry) bool {
	switch pipeline.ClassOf(entry.Error) {
	case keyExists, immutable, bodyTooLarge, writeFailed:
		return false
	default:
		return entry.Failing()
	}
}

// Actions of Events.
const (
	actionFetch = "Fetch"
	actionWrite = "Write"
	// actionRemove: a key that is no longer asked for is taken out.
	actionRemove = "Remove"
)

// failed returns the Event for an entry that now fails.
func failed(i Item, entry status.Entry, action, note string) Event {
	if cause := condition.WhyEmpty(pipeline.ClassOf(entry.Error)); cause != "" {
		note += " [" + cause + "]"
	}
	return Event{
		Reason: entry.Error, Warning: true, Action: action, Note: note,
		Occurrence: occurrence(i.Key.Key, entry),
	}
}

// kept returns the Event for a key of ours that is no longer asked for and stays.
func kept(key string, written status.Fence, note string) Event {
	return Event{
		Reason: pipeline.Reason(keyExists), Warning: true, Action: actionRemove,
		Note:       "key " + key + " is no longer annotated but kept: " + note,
		Occurrence: "kept\x00" + key + "\x00" + written.String(),
	}
}

// recovered returns the Event for a key that is well again.
func recovered(i Item) Event {
	return Event{
		Reason:     reasonRecovered,
		Action:     actionFetch,
		Note:       condition.Host(i.url()) + " responded; key " + i.Key.Key + " is up to date",
		Occurrence: i.Key.Key + "\x00" + i.Fence.String(),
	}
}

// failureNote states what went wrong with a fetch, what that means for the key,
// and what comes next.
func failureNote(i Item, f *v1.Failure, entry status.Entry) string {
	note := condition.Sentence(i.url(), f) + "; " + condition.Value(i.Key.Key, entry.Written())
	if next := condition.Next(f, i.Result.GetObservedAt().AsTime()); next != "" {
		note += "; " + next
	}
	return note
}

// obstacleNote describes why a body was not written to an object with an obstacle.
func obstacleNote(i Item, entry status.Entry, o Obstacle) string {
	key, class := i.Key.Key, pipeline.ClassOf(entry.Error)
	note := condition.Unwritten(class, i.url(), key)
	switch {
	case class == keyExists, class == immutable:
		return note
	case class == writeFailed && o == NoRoom:
		return condition.NoRoom + "; " + condition.Value(key, entry.Written()) + "; shorten or remove an annotation"
	case class == writeFailed:
		return note + "; " + condition.Value(key, entry.Written()) + "; retrying"
	default:
		return note + "; " + condition.Value(key, entry.Written())
	}
}

// Refusal returns the Event for an item that the API server will not let into
// the object, not even as a report in its status. Without one there is no time
// since when it lasts; until the status or the obstacle changes it is the same change
// of state.
func Refusal(o *Object, i Item, by Obstacle) Event {
	held := o.Status.Keys[i.Key.Key]
	entry := failing(held, i.url(), pipeline.Reason(writeFailed), time.Time{})
	event := failed(i, entry, actionWrite, obstacleNote(i, entry, by))
	event.Occurrence = "refused\x00"
	if by == NoRoom {
		event.Occurrence = "no room\x00"
	}
	event.Occurrence += i.Key.Key + "\x00" + i.url() + "\x00" + held.Fence.String()
	return event
}

// Denial returns the Event for an item that the writer lacks the permission to
// apply. Nothing is known of the object then, so that it is the same change of
// state for as long as the Event is kept.
func Denial(i Item) Event {
	entry := failing(status.Entry{}, i.url(), pipeline.Reason(writeFailed), time.Time{})
	return failed(i, entry, actionWrite,
		"curl-me-that may not write ConfigMaps in this namespace; key "+i.Key.Key+" waits for the permission")
}

// OverBudget returns the Event for an item that is put off as its namespace is
// over its budget of writes. Until the status changes it is the same change of
// state.
func OverBudget(o *Object, i Item) Event {
	held := o.Status.Keys[i.Key.Key]
	entry := failing(held, i.url(), pipeline.Reason(writeFailed), time.Time{})
	event := failed(i, entry, actionWrite,
		"the namespace exceeded its write budget; "+condition.Value(i.Key.Key, entry.Written())+"; retrying later")
	event.Occurrence = "budget\x00" + i.Key.Key + "\x00" + held.Fence.String()
	return event
}

// Restoration returns the Event for an item that was applied after a Denial or
// OverBudget, which could not be recorded in the status.
func Restoration(i Item) Event { return recovered(i) }
