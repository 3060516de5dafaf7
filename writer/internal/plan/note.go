package plan

import (
	"strconv"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Reasons returns the reasons of all Events of the writer.
func Reasons() []string {
	reasons := []string{failure.ReasonRecovered, failure.ReasonUpdateAvailable, failure.ReasonPinned}
	for n := range len(v1.FailureClass_name) {
		if c := v1.FailureClass(n); c != failure.InvalidAnnotation {
			reasons = append(reasons, failure.Reason(c))
		}
	}
	return reasons
}

// Actions of Events.
const (
	actionFetch = "Fetch"
	actionWrite = "Write"
	// actionRemove removes a key that is no longer annotated.
	actionRemove = "Remove"
)

// failureEvent returns the Event for a failing entry.
func failureEvent(i Item, entry status.Entry, action, note string) Event {
	if cause := sentence.WhyEmpty(failure.ClassOf(entry.Error)); cause != "" {
		note += " [" + cause + "]"
	}
	return Event{
		Reason: entry.Error, Warning: true, Action: action, Note: note,
		Occurrence: occurrence(i.Key.Key, entry),
	}
}

// kept returns the Event for a key of ours that is no longer annotated but not removed.
func kept(key string, written status.Fence, note string) Event {
	return Event{
		Reason: failure.Reason(failure.KeyExists), Warning: true, Action: actionRemove,
		Note:       "key " + key + " is no longer annotated but kept: " + note,
		Occurrence: "kept\x00" + key + "\x00" + written.String(),
	}
}

// Recovered returns the Event for a key that has recovered, also from a Denial or OverBudget, which the
// status does not show.
func Recovered(i Item) Event {
	return Event{
		Reason:     failure.ReasonRecovered,
		Action:     actionFetch,
		Note:       sentence.Host(i.url()) + " responded; key " + i.Key.Key + " is up to date",
		Occurrence: i.Key.Key + "\x00" + i.Fence.String(),
	}
}

// failureNote says what failed, what that means for the key, and what comes next.
func failureNote(i Item, f *v1.Failure, entry status.Entry) string {
	note := sentence.Failure(i.Result.GetWant(), f) + "; " + sentence.Value(i.Key.Key, entry.HasBody())
	if sentence.Terminal(i.url(), f) {
		return note + "; " + sentence.Permanent
	}
	if next := sentence.Next(f, i.Result.GetObservedAt().AsTime()); next != "" {
		note += "; " + next
	}
	return note
}

// obstacleNote says why a body was not written.
func obstacleNote(i Item, entry status.Entry, by Obstacle) string {
	key, class := i.Key.Key, failure.ClassOf(entry.Error)
	if i.OfObject() && by != Stripped {
		return "the API server refused to update curl-status or to remove keys, perhaps by an admission policy or " +
			"webhook; retrying"
	}
	size := len(i.Result.GetContent().GetBody())
	note := sentence.Unwritten(class, i.url(), key, size)
	switch {
	case class == failure.KeyExists, class == failure.Immutable:
		return note
	case class == failure.ContentRejected:
		return sentence.BecomesHTML(i.url(), key)
	case class == failure.WriteFailed && by == Stripped:
		return sentence.Stripped
	case class == failure.WriteFailed && by == Altered:
		return sentence.Altered(key)
	case class == failure.WriteFailed && by == Failed:
		return sentence.Failed + "; " + sentence.Value(key, entry.HasBody()) + "; retrying"
	case class == failure.BodyTooLarge && by == ObjectTooLarge:
		return sentence.ObjectTooLarge(key, size) + "; " + sentence.Value(key, entry.HasBody())
	case class == failure.WriteFailed && by == StatusTooLarge:
		return sentence.NoRoom + "; " + sentence.Value(key, entry.HasBody()) + "; shorten or remove an annotation"
	case class == failure.WriteFailed:
		return note + "; " + sentence.Value(key, entry.HasBody()) + "; retrying"
	default:
		return note + "; " + sentence.Value(key, entry.HasBody())
	}
}

// Refusal returns the Event for an item that the API server refuses, even as a failure in the status. The
// status has no start of the failure, so it counts as the same problem until the status or the obstacle changes.
func Refusal(o *Object, i Item, by Obstacle) Event {
	var recorded status.Entry
	if o != nil { // nil: it could not be read
		recorded = o.Status.Keys[i.Key.Key]
	}
	entry := failing(recorded, i.url(), failure.Reason(failure.WriteFailed), time.Time{})
	event := failureEvent(i, entry, actionWrite, obstacleNote(i, entry, by))
	event.Occurrence = string(by) + "\x00" + i.Key.Key + "\x00" + i.url() + "\x00" + recorded.Fence.String()
	return event
}

// Denial returns the Event for an item that the writer has no permission, or no valid token, to apply. Without
// permission the object cannot be read, so one Event stands for all further denials until it expires.
func Denial(i Item, noToken bool) Event {
	entry := failing(status.Entry{}, i.url(), failure.Reason(failure.WriteFailed), time.Time{})
	waits := "key " + i.Key.Key + " waits"
	if i.OfObject() {
		waits = "curl-status and the removal of keys wait"
	}
	text := "curl-me-that may not write ConfigMaps in this namespace; " + waits + " for the permission"
	if noToken {
		text = "the API server does not accept the token of curl-me-that; " + waits + " for a new one"
	}
	return failureEvent(i, entry, actionWrite, text)
}

// OverBudget returns the Event for an item of a namespace that exceeded its write budget. It counts as the
// same problem until the status changes.
func OverBudget(o *Object, i Item) Event {
	recorded := o.Status.Keys[i.Key.Key]
	entry := failing(recorded, i.url(), failure.Reason(failure.WriteFailed), time.Time{})
	event := failureEvent(i, entry, actionWrite,
		"the namespace exceeded its write budget; "+sentence.Value(i.Key.Key, entry.HasBody())+"; retrying later")
	event.Occurrence = "budget\x00" + i.Key.Key + "\x00" + recorded.Fence.String()
	return event
}

// occurrence identifies a failing state. It is the same in each replica and each time that the state is
// reported. For a foreign key the watcher, which usually sees it first, uses the same one.
func occurrence(key string, entry status.Entry) string {
	if entry.Error == failure.Reason(failure.KeyExists) {
		return key
	}
	name := key + "\x00" + entry.FailingURL() + "\x00" + entry.Since.Format(time.RFC3339)
	if entry.GaveUp {
		name += "\x00gave up\x00" + strconv.Itoa(int(entry.Why().HTTPStatus))
		if number := entry.Why().Rule; number > 0 {
			name += "\x00rule " + strconv.Itoa(int(number))
		}
	}
	return name
}
