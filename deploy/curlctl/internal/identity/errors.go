package identity

import "errors"

var (
	// ErrUnusable is about what exists and is not what it must be. It is never
	// overwritten.
	ErrUnusable = errors.New("cannot be used")
	// errRaced: another process has changed what was read.
	errRaced = errors.New("changed meanwhile")
)
