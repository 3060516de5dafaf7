// Package access decides who may use the console, and for what: by a token that is
// printed, by tokens of a cluster, or without any.
package access

import "time"

// Right is what a person may do: a verb, and one of the resources that the
// console knows.
type Right string

// The rights. The console asks for nothing else.
const (
	See    Right = "get failures"
	Replay Right = "create replays"
	Purge  Right = "delete failures"
	Pause  Right = "update pipelines"
	Audits Right = "get audits"
)

// Person is a user of the console.
type Person struct {
	// Name of the person, or of the NATS user.
	Name string
	// OnBehalfOf goes into the audit where NATS knows the console only.
	OnBehalfOf string
	// Until is when the person has to sign in again; zero: never.
	Until time.Time

	groups []string
	uid    string
	extra  map[string][]string
}

// ReviewError means that the API server could not review a right.
type ReviewError struct {
	// Right that was asked for.
	Right Right
	// Err is that of the API server.
	Err error
}

// Error names the right.
func (e *ReviewError) Error() string {
	return "the right to " + string(e.Right) + " could not be reviewed: " + e.Err.Error()
}

// Unwrap returns the error of the API server.
func (e *ReviewError) Unwrap() error { return e.Err }
