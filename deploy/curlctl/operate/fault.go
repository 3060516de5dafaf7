package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Fault is a kind of error: the exit code of curlctl, and the HTTP status of the console if pages can have it.
type Fault struct{ Exit, Status int }

//nolint:gochecknoglobals // constants
var (
	// Failed means that no other fault fits.
	Failed = Fault{1, http.StatusBadGateway}
	// Usage means that the command line is wrong.
	Usage = Fault{2, http.StatusBadRequest}
	// NoConnection means that NATS or Kubernetes is unavailable.
	NoConnection = Fault{3, http.StatusServiceUnavailable}
	// NotPermitted means that the identity may not do this.
	NotPermitted = Fault{4, http.StatusForbidden}
	// NotFound means that the object does not exist.
	NotFound = Fault{5, http.StatusNotFound}
	// NotSetUp means that a stream or consumer does not exist. A page tries again until it does.
	NotSetUp = Fault{5, http.StatusServiceUnavailable}
	// FailedAgain means that a replay failed again, was interrupted, or did not end in time.
	FailedAgain = Fault{Exit: 6}
	// Found means that doctor, check or setup --dry-run found a problem.
	Found = Fault{Exit: 7}
	// NotConfirmed means that the user declined, or that there was no terminal to ask.
	NotConfirmed = Fault{Exit: 8}
)

// FaultOf returns the fault of an error, and the error in words for people. Cause is the cause of the context, or nil.
func FaultOf(cause, err error) (Fault, error) {
	var denied *PermissionError
	cluster, isCluster := errors.AsType[*ClusterError](err)
	switch {
	case errors.As(cause, &denied), errors.As(err, &denied):
		return NotPermitted, denied
	case isCluster && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		return NotPermitted, cluster
	case isCluster && apierrors.IsNotFound(err):
		return NotFound, cluster
	case isCluster:
		return NoConnection, fmt.Errorf("cannot reach Kubernetes: %w", cluster)
	case errors.Is(err, ErrNoConnection):
		return NoConnection, err
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return NotSetUp, fmt.Errorf("%w (`curlctl setup` creates it)", err)
	case errors.Is(err, ErrNoConsumer):
		return NotSetUp, err
	case errors.Is(err, pipeline.ErrNoMessage):
		return NotFound, err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, jetstream.ErrNoStreamResponse):
		return NoConnection, fmt.Errorf("NATS does not respond: %w", err)
	}
	return Failed, err
}
