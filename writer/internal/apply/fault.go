package apply

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

// fault is what an answer of the API server means for a request.
type fault int

const (
	// none: the request was done.
	none fault = iota
	// conflict: the object has changed; read it and try again.
	conflict
	// gone: the object does not exist, or not for long.
	gone
	// immutable: its values cannot be changed.
	immutable
	// tooLarge: the values exceed a limit.
	tooLarge
	// statusTooLarge: the annotations exceed their limit.
	statusTooLarge
	// rejected: this change is refused, such as by an admission webhook.
	rejected
	// forbidden: the writer lacks a permission.
	forbidden
	// away: the API server cannot serve anybody now.
	away
)

// String returns the fault as it stands in metric labels.
func (f fault) String() string {
	return [...]string{
		"ok", "conflict", "gone", "immutable", "too_large", "status_too_large",
		"rejected", "forbidden", "unavailable",
	}[f]
}

// faults returns all faults.
func faults() []fault {
	return []fault{none, conflict, gone, immutable, tooLarge, statusTooLarge, rejected, forbidden, away}
}

// classify is the one table of what can come back from the API server.
func classify(err error) fault {
	if err == nil {
		return none
	}
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return away // no answer, or one that asks to come back later
	}
	s := answer.Status()
	if admission(s.Message) {
		return rejected // whatever status the webhook has chosen
	}
	switch s.Code {
	case http.StatusConflict:
		return conflict
	case http.StatusNotFound:
		if byProxy(s) {
			return away
		}
		return gone
	case http.StatusUnauthorized:
		return forbidden
	case http.StatusForbidden:
		return classifyForbidden(s)
	case http.StatusUnprocessableEntity:
		return classifyInvalid(s)
	case http.StatusRequestEntityTooLarge:
		return tooLarge
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return away
	}
	switch {
	case strings.Contains(s.Message, "etcdserver: request is too large"):
		return tooLarge
	case s.Code >= http.StatusInternalServerError:
		return away
	}
	return rejected
}

// answered tells whether a request that failed was answered at all.
func answered(err error) bool {
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return true
	}
	_, ok := errors.AsType[*busyError](err)
	return ok
}

// admission tells whether a webhook or policy refused the request, or the
// webhook could not be asked. It concerns the objects that it is for, not the
// API server.
func admission(message string) bool {
	return strings.Contains(message, "admission webhook ") && strings.Contains(message, " denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy ") && strings.Contains(message, " denied request") ||
		strings.Contains(message, "failed calling webhook ")
}

// classifyForbidden tells the refusal by an authorizer, which is about who
// asks, from that by an admission plugin, which is about what is asked for.
func classifyForbidden(s metav1.Status) fault {
	switch {
	case hasCause(s, corev1.NamespaceTerminatingCause):
		return gone
	case strings.Contains(s.Message, " cannot patch resource ") || strings.Contains(s.Message, " cannot get resource ") ||
		strings.Contains(s.Message, " cannot create resource "), byProxy(s):
		return forbidden
	}
	return rejected
}

// classifyInvalid reads which field of the object was refused, and why.
func classifyInvalid(s metav1.Status) fault {
	if s.Details == nil {
		return rejected
	}
	for _, cause := range s.Details.Causes {
		tooLong := string(cause.Type) == string(field.ErrorTypeTooLong)
		switch cause.Field {
		case "metadata.uid":
			return conflict // another object has the name now
		case "metadata.annotations":
			if tooLong {
				return statusTooLarge
			}
		case "data", "binaryData":
			if strings.Contains(cause.Message, "field is immutable") {
				return immutable
			}
		case "[]": // all values together
			if tooLong {
				return tooLarge
			}
		}
	}
	return rejected
}

// byProxy tells whether something else than an API server has answered, such
// as a proxy in front of it.
func byProxy(s metav1.Status) bool { return hasCause(s, metav1.CauseTypeUnexpectedServerResponse) }

func hasCause(s metav1.Status, cause metav1.CauseType) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == cause })
}

// retryAfter returns how long the API server asks to be left alone.
func retryAfter(err error) time.Duration {
	if busy, ok := errors.AsType[*busyError](err); ok {
		return busy.after
	}
	return 0
}
