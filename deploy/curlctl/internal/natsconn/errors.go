package natsconn

import (
	"errors"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
)

// ErrNoConnection means that no server took the connection.
var ErrNoConnection = errors.New("cannot connect to NATS")

// PermissionError is what the server does not let the user do.
type PermissionError struct {
	// Operation is "publish to" or "subscribe to".
	Operation string
	// Subject that was refused.
	Subject string
}

// Error returns what was refused and what to do.
func (e *PermissionError) Error() string {
	return "this NATS user may not " + e.Operation + " " + e.Subject +
		"; use an identity that may (--context or --nats-creds), or ask for that permission"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// refusal reads the server's answer. The request that only asks for the name of the
// user is no reason to stop.
func refusal(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	refused := &PermissionError{Operation: "do this:", Subject: "the server names no subject"}
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
