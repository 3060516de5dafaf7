package apiserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Outcome is what an answer of the API server means for a request: the word in
// metric labels and logs, which is its name in snake case.
type Outcome string

// Outcomes of a request that was looked at: done, or to be made again for what the
// object is now.
const (
	// OK: the request was done.
	OK Outcome = "ok"
	// Conflict: the object has changed; read it and try again.
	Conflict Outcome = "conflict"
	// Gone: the object does not exist, or not for long.
	Gone Outcome = "gone"
)

// Outcomes that are about the change, and about no other one.
const (
	// Immutable: its values cannot be changed.
	Immutable Outcome = "immutable"
	// TooLarge: the values exceed a limit.
	TooLarge Outcome = "too_large"
	// StatusTooLarge: the annotations exceed their limit.
	StatusTooLarge Outcome = "status_too_large"
	// Rejected: this change is refused, such as by an admission webhook.
	Rejected Outcome = "rejected"
)

// Outcomes that are about all changes: in a namespace, or anywhere.
const (
	// Forbidden: the writer lacks a permission.
	Forbidden Outcome = "forbidden"
	// Unavailable: the API server cannot serve any request now.
	Unavailable Outcome = "unavailable"
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OK, Conflict, Gone, Immutable, TooLarge, StatusTooLarge, Rejected, Forbidden, Unavailable}
}

// Classify is the one table of what can come back from the API server.
func Classify(err error) Outcome {
	if err == nil {
		return OK
	}
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return Unavailable // no answer, or one that asks to come back later
	}
	s := answer.Status()
	if byAdmission(s.Message) {
		return Rejected // whatever status the webhook has chosen
	}
	switch s.Code {
	case http.StatusConflict:
		return Conflict
	case http.StatusNotFound:
		if byProxy(s) {
			return Unavailable
		}
		return Gone
	case http.StatusUnauthorized:
		return Forbidden
	case http.StatusForbidden:
		return classifyForbidden(s)
	case http.StatusUnprocessableEntity:
		return classifyInvalid(s)
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return Unavailable
	}
	switch {
	case strings.Contains(s.Message, "etcdserver: request is too large"):
		return TooLarge
	case s.Code >= http.StatusInternalServerError:
		return Unavailable
	}
	return Rejected
}

// gotResponse reports whether a request that failed got a response at all.
func gotResponse(err error) bool {
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return true
	}
	_, ok := errors.AsType[*busyError](err)
	return ok
}

// byAdmission reports whether a webhook or policy refused the request, or the
// webhook could not be asked. It concerns the objects that it is for, not the
// API server.
func byAdmission(message string) bool {
	return strings.Contains(message, "admission webhook ") && strings.Contains(message, " denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy ") && strings.Contains(message, " denied request") ||
		strings.Contains(message, "failed calling webhook ")
}

// classifyForbidden distinguishes the refusal by an authorizer, which is about
// the identity, from that by an admission plugin, which is about the change.
func classifyForbidden(s metav1.Status) Outcome {
	switch {
	case hasCause(s, corev1.NamespaceTerminatingCause):
		return Gone
	case strings.Contains(s.Message, " cannot patch resource ") || strings.Contains(s.Message, " cannot get resource ") ||
		strings.Contains(s.Message, " cannot create resource "), byProxy(s):
		return Forbidden
	}
	return Rejected
}

// classifyInvalid reads which field of the object was refused, and why.
func classifyInvalid(s metav1.Status) Outcome {
	if s.Details == nil {
		return Rejected
	}
	for _, cause := range s.Details.Causes {
		tooLong := string(cause.Type) == string(field.ErrorTypeTooLong)
		switch cause.Field {
		case "metadata.uid":
			return Conflict // another object has the name now
		case "metadata.annotations":
			if tooLong {
				return StatusTooLarge
			}
		case "data", "binaryData":
			if strings.Contains(cause.Message, "field is immutable") {
				return Immutable
			}
		case "[]": // all values together
			if tooLong {
				return TooLarge
			}
		}
	}
	return Rejected
}

// byProxy reports whether the response is of something else than an API server, such
// as a proxy in front of it.
func byProxy(s metav1.Status) bool { return hasCause(s, metav1.CauseTypeUnexpectedServerResponse) }

func hasCause(s metav1.Status, cause metav1.CauseType) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == cause })
}

// RetryAfter returns for how long the API server asks for no more requests.
func RetryAfter(err error) time.Duration {
	if busy, ok := errors.AsType[*busyError](err); ok {
		return busy.after
	}
	return 0
}
