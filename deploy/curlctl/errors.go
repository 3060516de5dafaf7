package curlctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
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

// exitf returns an error with the exit code of its kind. Its text is printable.
func exitf(code int, format string, args ...any) error {
	return service.ExitError{Err: printable{fmt.Errorf(format, args...)}, Code: code}
}

// printable is an error that names what tenants and servers choose.
type printable struct{ error }

// Error returns the text without control characters other than line breaks.
func (e printable) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i, line := range lines {
		lines[i] = printer.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the error itself.
func (e printable) Unwrap() error { return e.error }

// usagef returns an error for a command line that cannot be understood.
func usagef(format string, args ...any) error { return exitf(exitUsage, format, args...) }

// silent returns an exit code for a command that has printed everything.
func silent(code int) error { return service.ExitError{Code: code, Silent: true} }

// fromKubernetes gives an error of the API server, or of its absence, its exit code;
// right is what the user may not do if that was refused.
func fromKubernetes(err error, right string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return exitf(exitPermission, "this Kubernetes user may not %s", right)
	}
	return noCluster(err)
}

func noCluster(err error) error {
	return exitf(exitNoConnection, "cannot reach Kubernetes: %w", err)
}

// coded gives an error its exit code, and its sentence where the one that it
// has is too short.
func coded(ctx context.Context, err error) error {
	var exit service.ExitError
	var refused *natsconn.PermissionError
	switch {
	case err == nil, errors.As(err, &exit):
		return err
	case errors.As(context.Cause(ctx), &refused), errors.As(err, &refused):
		return exitf(exitPermission, "%w", refused)
	case errors.Is(err, natsconn.ErrNoConnection):
		return exitf(exitNoConnection, "%w", err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return exitf(exitNotFound, "%w; `curlctl setup` creates what is missing", err)
	case errors.Is(err, pipeline.ErrFull):
		return exitf(exitFailed, "nothing was done, since it cannot be recorded: %w; `curlctl setup --max-audit-bytes` makes room", err)
	case errors.Is(err, overview.ErrNoConsumer), errors.Is(err, pipeline.ErrNoMessage):
		return exitf(exitNotFound, "%w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, jetstream.ErrNoStreamResponse):
		return exitf(exitNoConnection, "NATS does not answer: %w", err)
	}
	return exitf(exitFailed, "%w", err)
}
