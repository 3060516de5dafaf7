package natsconn

import (
	"errors"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
)

// ErrNoConnection means that no server accepted the connection.
var ErrNoConnection = errors.New("cannot connect to NATS")

// PermissionError means that the server denied an operation.
type PermissionError struct {
	// Operation is "publish to" or "subscribe to".
	Operation string
	// Subject of the operation.
	Subject string
}

// Error names the operation and what to do.
func (e *PermissionError) Error() string {
	return "this NATS user may not " + e.Operation + " " + e.Subject +
		": use another identity (--context or --nats-creds), or ask for that permission"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// refusal reads a permission violation. It ignores the optional request for the user.
func refusal(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	refused := &PermissionError{Operation: "do this:", Subject: "the server did not name the subject"}
	if match := violation.FindStringSubmatch(err.Error()); match != nil {
		refused.Operation, refused.Subject = "publish to", match[2]
		if strings.EqualFold(match[1], "subscription") {
			refused.Operation = "subscribe to"
		}
	}
	if refused.Subject == userInfo {
		return nil
	}
	return refused
}
