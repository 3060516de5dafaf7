// Package fault has the kinds of errors: exit codes of commands, and HTTP statuses of pages.
package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Kind of an error: the exit code of curlctl, and the HTTP status of the console if pages can have it.
type Kind struct{ Exit, Status int }

//nolint:gochecknoglobals // constants
var (
	// Failed means that no other kind fits.
	Failed = Kind{1, http.StatusBadGateway}
	// Usage means that the command line is wrong.
	Usage = Kind{2, http.StatusBadRequest}
	// NoConnection means that NATS or Kubernetes is unavailable.
	NoConnection = Kind{3, http.StatusServiceUnavailable}
	// NotPermitted means that the identity may not do this.
	NotPermitted = Kind{4, http.StatusForbidden}
	// NotFound means that the object does not exist.
	NotFound = Kind{5, http.StatusNotFound}
	// NotSetUp means that a stream or consumer does not exist. A page tries again until it does.
	NotSetUp = Kind{5, http.StatusServiceUnavailable}
	// FailedAgain means that a replay failed again, or did not end in time.
	FailedAgain = Kind{Exit: 6}
	// Interrupted means that the user ended the command.
	Interrupted = Kind{6, http.StatusServiceUnavailable}
	// ProblemFound means that doctor, check or setup --dry-run found a problem.
	ProblemFound = Kind{Exit: 7}
	// NotConfirmed means that the user declined, or that there was no terminal to ask.
	NotConfirmed = Kind{Exit: 8}
)

// Of returns the kind of an error, and the error in words for people. Cause is the cause of the context, or nil.
func Of(cause, err error) (Kind, error) {
	var denied *broker.PermissionError
	cluster, isCluster := errors.AsType[*cluster.Error](err)
	switch {
	case errors.As(cause, &denied), errors.As(err, &denied):
		return NotPermitted, denied
	case errors.Is(err, context.Canceled):
		return Interrupted, errors.New("interrupted")
	case isCluster && (apierrors.IsForbidden(cluster.Err) || apierrors.IsUnauthorized(cluster.Err)):
		return NotPermitted, err
	case isCluster && apierrors.IsNotFound(cluster.Err):
		return NotFound, err
	case errors.Is(err, broker.ErrNoConnection):
		return NoConnection, err
	case isCluster && refused(cluster.Err):
		return Failed, err
	case isCluster:
		return NoConnection, fmt.Errorf("cannot reach Kubernetes: %w", err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return NotSetUp, fmt.Errorf("%w (`curlctl setup` creates it)", err)
	case errors.Is(err, broker.ErrNoConsumer):
		return NotSetUp, err
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrNoBody):
		return NotFound, err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, jetstream.ErrNoStreamResponse):
		return NoConnection, fmt.Errorf("NATS does not respond: %w", err)
	}
	return Failed, err
}

// refused reports whether the API server handled a request, and answered with an error.
func refused(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return answered && !apierrors.IsServiceUnavailable(err)
}
