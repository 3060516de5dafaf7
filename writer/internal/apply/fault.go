package apply

import (
	"errors"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return none
	case !errors.As(err, &status):
		return away // no answer, or not one of an API server
	}
	s := status.Status()
	switch s.Code {
	case http.StatusConflict:
		return conflict
	case http.StatusNotFound:
		if isForeignAnswer(s) {
			return away
		}
		return gone
	case http.StatusUnauthorized:
		return forbidden
	case http.StatusForbidden:
		return classifyForbidden(err, s)
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
	case strings.Contains(s.Message, "failed calling webhook"):
		return rejected // this object's webhook is broken, not the API server
	case s.Code >= http.StatusInternalServerError:
		return away
	}
	return rejected
}

// classifyForbidden tells the refusal by an authorizer, which is about who
// asks, from that by admission, which is about what is asked for.
func classifyForbidden(err error, s metav1.Status) fault {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return gone
	case strings.Contains(s.Message, " cannot patch resource ") || strings.Contains(s.Message, " cannot get resource "):
		return forbidden
	case isForeignAnswer(s):
		return forbidden
	}
	return rejected
}

// classifyInvalid reads which field of the object was refused.
func classifyInvalid(s metav1.Status) fault {
	if s.Details == nil || len(s.Details.Causes) == 0 {
		return rejected
	}
	for _, cause := range s.Details.Causes {
		switch {
		case cause.Field == "metadata.uid":
			return conflict // another object has the name now
		case cause.Field == "metadata.annotations" && strings.Contains(cause.Message, "Too long"):
			return statusTooLarge
		case strings.Contains(cause.Message, "immutable"):
			return immutable
		case strings.Contains(cause.Message, "Too long"):
			return tooLarge
		}
	}
	return rejected
}

// isForeignAnswer tells whether something else than an API server has answered,
// such as a proxy in front of it.
func isForeignAnswer(s metav1.Status) bool {
	if s.Details == nil {
		return false
	}
	for _, cause := range s.Details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}

// retryAfter returns how long the API server asks to be left alone.
func retryAfter(err error) time.Duration {
	var busy *busyError
	if errors.As(err, &busy) {
		return busy.after
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(seconds) * time.Second
	}
	return 0
}
