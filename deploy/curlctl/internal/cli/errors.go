package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

// Exit codes.
const (
	// Failed: no other code fits.
	Failed = 1
	// Usage: the command line is wrong.
	Usage = 2
	// NoConnection: NATS or Kubernetes is unavailable.
	NoConnection = 3
	// Permission: the identity may not do this.
	Permission = 4
	// NotFound: the object does not exist.
	NotFound = 5
	// FailedAgain: a replay failed again, was interrupted, or did not end in time.
	FailedAgain = 6
	// Found: doctor, check or setup --dry-run found a problem.
	Found = 7
	// NotConfirmed: the user declined, or there was no terminal to ask.
	NotConfirmed = 8
)

// Errorf returns a printable error with an exit code.
func Errorf(code int, format string, args ...any) error {
	return process.ExitError{Err: printable{fmt.Errorf(format, args...)}, Code: code}
}

// printable is an error whose text tenants and servers may control.
type printable struct{ error }

// Error returns the text without control characters other than line breaks.
func (e printable) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i, line := range lines {
		lines[i] = printer.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the error.
func (e printable) Unwrap() error { return e.error }

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }

// NotNegative returns an error if the value of a flag is negative.
func NotNegative(flag string, value int) error {
	if value < 0 {
		return Usagef("--%s must not be negative", flag)
	}
	return nil
}

// Silent returns an exit code without a message.
func Silent(code int) error { return process.ExitError{Code: code, Silent: true} }

// withCode adds the exit code to an error.
func withCode(ctx context.Context, err error) error {
	var exit process.ExitError
	var refused *natsconn.PermissionError
	var kubernetes *cluster.Error
	switch {
	case err == nil, errors.As(err, &exit):
		return err
	case errors.As(context.Cause(ctx), &refused), errors.As(err, &refused):
		return Errorf(Permission, "%w", refused)
	case errors.As(err, &kubernetes) && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		return Errorf(Permission, "%w", kubernetes)
	case errors.As(err, &kubernetes):
		return Errorf(NoConnection, "cannot reach Kubernetes: %w", kubernetes)
	case errors.Is(err, natsconn.ErrNoConnection):
		return Errorf(NoConnection, "%w", err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return Errorf(NotFound, "%w (`curlctl setup` creates it)", err)
	case errors.Is(err, operate.ErrNoConsumer), errors.Is(err, pipeline.ErrNoMessage):
		return Errorf(NotFound, "%w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, jetstream.ErrNoStreamResponse):
		return Errorf(NoConnection, "NATS does not respond: %w", err)
	}
	return Errorf(Failed, "%w", err)
}
