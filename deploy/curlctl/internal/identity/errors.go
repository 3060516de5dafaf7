package identity

import "errors"

var (
	// ErrUnusable tells that something exists and is not what it must be. It is
	// never overwritten.
	ErrUnusable = errors.New("cannot be used")
	// errRaced tells that another process has changed what was read.
	errRaced = errors.New("changed meanwhile")
)
