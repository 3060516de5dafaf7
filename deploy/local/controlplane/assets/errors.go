package assets

import "errors"

var (
	// ErrMissing means that a folder lacks one of the binaries.
	ErrMissing = errors.New("control plane binary missing")
	// ErrNoToolchain means that there is no go command to build the binaries with.
	ErrNoToolchain = errors.New("no go toolchain")
	// ErrBuild means that the go command ran and failed.
	ErrBuild = errors.New("build of the control plane failed")
)
