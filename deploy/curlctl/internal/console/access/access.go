// Package access authenticates and authorizes the users of the console: by a printed token, by tokens of a
// cluster, or not at all.
package access

import authenticationv1 "k8s.io/api/authentication/v1"

// Right is a verb and a resource.
type Right string

// The rights.
const (
	See    Right = "get failures"
	Replay Right = "create replays"
	Purge  Right = "delete failures"
	Pause  Right = "update pipelines"
	Audits Right = "get audits"
)

// Person is a user of the console.
type Person struct {
	// Name of the person or of the NATS user.
	Name string
	// OnBehalfOf is the name for the audit if the console has its own NATS user.
	OnBehalfOf string

	// user is the subject of SubjectAccessReviews.
	user authenticationv1.UserInfo
}

// ReviewError means that the API server could not review a right.
type ReviewError struct {
	Right Right
	Err   error
}

// Error implements error.
func (e *ReviewError) Error() string {
	return "the right to " + string(e.Right) + " could not be checked: " + e.Err.Error()
}

// Unwrap returns the error of the API server.
func (e *ReviewError) Unwrap() error { return e.Err }
