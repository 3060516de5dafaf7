package curlctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service"
)

// Exit codes.
const (
	// exitFailed: something went wrong that has no code of its own.
	exitFailed = 1
	// exitUsage: the command line cannot be understood.
	exitUsage = 2
	// exitNoConnection: NATS or Kubernetes cannot be reached.
	exitNoConnection = 3
	// exitPermission: the identity may not do this.
	exitPermission = 4
	// exitNotFound: what was named does not exist.
	exitNotFound = 5
	// exitFailedAgain: a replay ended, and not all of it well.
	exitFailedAgain = 6
	// exitFound: doctor found something to mend, check something that is
	// denied or wrong.
	exitFound = 7
	// exitRefused: the user declined, or could not be asked.
	exitRefused = 8
)

var (
	errUsage    = errors.New("wrong usage")
	errNotFound = errors.New("not found")
	errRefused  = errors.New("nothing was done")
	// errInterrupted: a signal ended a replay.
	errInterrupted = errors.New("interrupted")
	// errNoCluster: Kubernetes cannot be reached.
	errNoCluster = errors.New("cannot reach Kubernetes")
)

// usagef returns an error for a command line that cannot be understood.
func usagef(format string, args ...any) error {
	return service.ExitError{Err: fmt.Errorf(format, args...), Code: exitUsage}
}

// silent returns an exit code for a command that has printed everything.
func silent(code int) error { return service.ExitError{Code: code, Silent: true} }

// coded gives an error its exit code, and its sentence where the one that it
// has is too short.
func coded(ctx context.Context, err error) error {
	var exit service.ExitError
	var refused *natsconn.PermissionError
	switch {
	case err == nil, errors.As(err, &exit):
		return err
	case errors.As(context.Cause(ctx), &refused), errors.As(err, &refused):
		return service.ExitError{Err: refused, Code: exitPermission}
	case errors.Is(err, natsconn.ErrNoConnection), errors.Is(err, errNoCluster):
		return service.ExitError{Err: err, Code: exitNoConnection}
	case errors.Is(err, errUsage):
		return service.ExitError{Err: err, Code: exitUsage}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return service.ExitError{Err: fmt.Errorf("%w; `curlctl setup` creates what is missing", err), Code: exitNotFound}
	case errors.Is(err, pipeline.ErrFull):
		return service.ExitError{Err: fmt.Errorf("nothing was done, since it cannot be recorded: %w; `curlctl setup --max-audit-bytes` makes room", err), Code: exitFailed}
	case errors.Is(err, errNotFound), errors.Is(err, overview.ErrNoConsumer), errors.Is(err, pipeline.ErrNoMessage):
		return service.ExitError{Err: err, Code: exitNotFound}
	case errors.Is(err, errRefused):
		return service.ExitError{Err: err, Code: exitRefused}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, jetstream.ErrNoStreamResponse):
		return service.ExitError{Err: fmt.Errorf("NATS does not answer: %w", err), Code: exitNoConnection}
	}
	return service.ExitError{Err: err, Code: exitFailed}
}

// wrapNotFound returns the error for what does not exist.
func wrapNotFound(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errNotFound)
}
