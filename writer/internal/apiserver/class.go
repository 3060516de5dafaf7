package apiserver

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Class is the class of a response of the API server, as in metric labels and logs.
type Class string

// Classes of a request that succeeded or needs the current object.
const (
	// OK means that the request succeeded.
	OK Class = "ok"
	// Conflict means that the object has changed. Read it and try again.
	Conflict Class = "conflict"
	// Gone means that the object does not exist, or is about to be deleted.
	Gone Class = "gone"
)

// Classes that concern all changes in a namespace, or everywhere.
const (
	// Forbidden means that the writer lacks a permission.
	Forbidden Class = "forbidden"
	// Unavailable means that the API server cannot serve any request now.
	Unavailable Class = "unavailable"
)

// Classes that concern one object, whose next plan takes the obstacle into account.
const (
	Immutable      = Class(plan.Immutable)
	TooLarge       = Class(plan.TooLarge)
	ObjectTooLarge = Class(plan.ObjectTooLarge)
	StatusTooLarge = Class(plan.StatusTooLarge)
	Rejected       = Class(plan.Rejected)
	Stripped       = Class(plan.Stripped)
	Altered        = Class(plan.Altered)
	Failed         = Class(plan.Failed)
)

// Obstacle returns the obstacle of a class that concerns one object.
func (c Class) Obstacle() plan.Obstacle { return plan.Obstacle(c) }

// Classes returns all classes.
func Classes() []Class {
	return []Class{
		OK, Conflict, Gone, Forbidden, Unavailable, Immutable, TooLarge, ObjectTooLarge, StatusTooLarge, Rejected,
		Stripped, Altered, Failed,
	}
}

// Errors of a patch that was accepted.
var (
	// ErrStripped stands for the removal of our status by admission.
	ErrStripped = errors.New("admission removed or changed " + annotation.StatusKey)
	// ErrAltered stands for another value than the one that we sent.
	ErrAltered = errors.New("admission removed or changed a value")
)

// Classify classifies responses of the API server. No other code does.
func Classify(err error) Class {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrStripped):
		return Stripped
	case errors.Is(err, ErrAltered):
		return Altered
	}
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return Failed
		}
		return Unavailable
	}
	s := answer.Status()
	if byAdmission(s.Message) {
		return Rejected // the webhook may choose any status code
	}
	switch s.Code {
	case http.StatusConflict:
		return Conflict
	case http.StatusNotFound:
		if byProxy(err) {
			return Unavailable
		}
		return Gone
	case http.StatusUnauthorized:
		return Forbidden
	case http.StatusForbidden:
		return classifyForbidden(answer)
	case http.StatusUnprocessableEntity:
		return classifyInvalid(s)
	case http.StatusRequestEntityTooLarge:
		return ObjectTooLarge
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return Unavailable
	case http.StatusRequestTimeout:
		return Failed
	}
	switch {
	case strings.Contains(s.Message, "etcdserver: request is too large"),
		strings.Contains(s.Message, "trying to send message larger than max"):
		return ObjectTooLarge
	case s.Code >= http.StatusInternalServerError && RetryAfter(err) > 0:
		return Unavailable
	case s.Code >= http.StatusInternalServerError:
		return Failed
	}
	return Rejected
}

// byAdmission reports whether a webhook or policy refused the request, or the webhook failed. That concerns
// the objects that it matches, not the API server.
func byAdmission(message string) bool {
	return strings.Contains(message, "admission webhook ") && strings.Contains(message, " denied the request") ||
		strings.Contains(message, "ValidatingAdmissionPolicy ") && strings.Contains(message, " denied request") ||
		strings.Contains(message, "failed calling webhook ")
}

// classifyForbidden separates a refusal by the authorizer, which concerns the identity, from one by
// an admission plugin, which concerns the change.
func classifyForbidden(answer *apierrors.StatusError) Class {
	message := answer.ErrStatus.Message
	switch {
	case apierrors.HasStatusCause(answer, corev1.NamespaceTerminatingCause):
		return Gone
	case strings.Contains(message, " cannot patch resource ") || strings.Contains(message, " cannot get resource ") ||
		strings.Contains(message, " cannot create resource "), byProxy(answer):
		return Forbidden
	}
	return Rejected
}

// classifyInvalid returns the class for the refused field.
func classifyInvalid(s metav1.Status) Class {
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

// byProxy reports whether the response comes not from an API server but from a proxy, for example.
func byProxy(err error) bool { return apierrors.IsUnexpectedServerError(err) }

// RetryAfter returns the pause that the API server requested.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
